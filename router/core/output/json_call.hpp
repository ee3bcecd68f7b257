// One call written as a JSON object: {"name": "f", "arguments": {...}}, or with "parameters", in any order, perhaps
// with other keys. The arguments are passed on byte for byte as they come, once the name is known; their end is found
// by counting brackets outside of strings, so that nothing is parsed twice and nothing is written anew. Owned by a
// format's parser; one thread. Bounds: `held_bytes_max` of what may turn out not to be a call; time is linear.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "router/core/output/output_writer.hpp"

namespace penstock::router {

class ToolSet;

class JsonCall {
 public:
  static constexpr std::size_t held_bytes_max = 256 << 10;

  enum class Progress : std::uint8_t {
    more,      // the text ends within it
    complete,  // it is over; what is left of the text is not its
    no_call,   // it was none: all its text has been given out as content, what is left of the text is not its
  };

  /// `before`: what stood before the object and is content if it is no call.
  void begin(std::string_view before);
  /// The object is the arguments alone; the name stood before it.
  void begin_arguments(std::string_view before, std::string_view name);
  /// Only a function of this set makes it a call; null: any name does. Must outlive the call.
  void only_names_of(const ToolSet* tools) { tools_ = tools; }
  /// The text begins with the object's "{" or goes on within it.
  Progress push(std::string_view& rest, OutputWriter& out);
  /// The text ends here. What was not a call yet becomes content.
  void finish(OutputWriter& out);

 private:
  enum class State : std::uint8_t {
    open,
    key_or_end,
    key,
    colon,
    value,
    name,
    arguments,
    text_arguments,
    skipped,
    after_value
  };
  enum class Take : std::uint8_t { took, ended, refused };
  Take step(char c, OutputWriter& out);
  Take begin_value(char c, OutputWriter& out);
  Take skip(char c, OutputWriter& out);
  Take take_arguments(char c);
  Take end_text_arguments(OutputWriter& out);
  Take end(OutputWriter& out);
  bool take_text(char c, std::string& text);  // true at its closing quote
  bool begin_call(OutputWriter& out);

  const ToolSet* tools_ = nullptr;
  State state_ = State::open;
  std::string held_;  // all of it, until it is known to be a call
  std::string key_;
  std::optional<std::string> name_;
  std::string arguments_;  // that have not been given out
  bool has_arguments_ = false;
  bool is_call_ = false;
  bool is_bare_ = false;  // the object is the arguments
  bool in_text_ = false;  // within a string
  bool is_escaped_ = false;
  std::size_t depth_ = 0;
};

}  // namespace penstock::router
