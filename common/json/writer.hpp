// JSON out: appends to a std::string that the caller owns and reuses. Made for the hot path (SSE chunks): no tree, no
// allocation besides the string's growth. Output is always valid JSON: bytes that are not UTF-8 become U+FFFD.
// Pure; one thread an object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace penstock::json {

/// Appends `text` escaped, without quotes. U+2028 and U+2029 are escaped too, since some readers break lines there.
void append_escaped(std::string& out, std::string_view text);
/// Appends `text` escaped, in quotes.
void append_quoted(std::string& out, std::string_view text);
void append_number(std::string& out, std::int64_t number);
void append_number(std::string& out, std::uint64_t number);
/// The shortest text that reads back as the same number; not-a-number and infinities become null.
void append_number(std::string& out, double number);

/// Objects and arrays with commas in the right places. Depth at most 64.
///   Writer w(out); w.begin_object(); w.field("id", id); w.key("choices"); w.begin_array(); ... w.end_array();
///   w.end_object();
class Writer {
 public:
  explicit Writer(std::string& out) : out_(out) {}

  void begin_object();
  void end_object();
  void begin_array();
  void end_array();
  void key(std::string_view name);

  void value(std::string_view text);
  void value(const char* text) { value(std::string_view(text)); }
  void value(const std::string& text) { value(std::string_view(text)); }
  void value(bool flag);
  void value(double number);
  void value(float number) { value(static_cast<double>(number)); }
  void value(std::int64_t number);
  void value(std::uint64_t number);
  void value(int number) { value(static_cast<std::int64_t>(number)); }
  void value(unsigned number) { value(static_cast<std::uint64_t>(number)); }
  void value(std::nullptr_t);
  /// Text that is JSON already.
  void raw(std::string_view json);

  template <class T>
  void field(std::string_view name, const T& content) {
    key(name);
    value(content);
  }

 private:
  void separate();

  std::string& out_;
  std::uint64_t has_items_ = 0;  // one bit a level: a comma is due before the next item
  unsigned depth_ = 0;
  bool after_key_ = false;
};

}  // namespace penstock::json
