// Finds the objects in the bytes of a LIST or of a watch stream as they come, cut anywhere, so that no list is ever
// held as a whole: at most one object and the list's envelope are buffered. It only counts brackets and quotes; whether
// a piece is JSON is for the parser to say. Pure; one owner. The bytes are hostile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/result.hpp"

namespace penstock::kube {

struct SplitLimits {
  std::size_t object_bytes_max = 4 << 20;  // the API server takes 3 MiB; a watch event adds its own frame
  std::size_t envelope_bytes_max = 64 << 10;
};

class ObjectSplitter {
 public:
  enum class Shape : std::uint8_t {
    events,  // objects one after the other, with white space between
    list,    // one object with an array `items`
  };
  struct Piece {
    enum class Kind : std::uint8_t {
      object,     // one event, or one item of the list
      oversized,  // an object over the limit was passed over; no text
      envelope,   // the end of a list: all of it but the items
    };
    Kind kind = Kind::object;
    std::string_view text;  // good until the next call; may point into the input
  };

  explicit ObjectSplitter(Shape shape, SplitLimits limits = {}) : shape_(shape), limits_(limits) {}

  /// Takes from the front of `input`. Nothing when all of it is taken: give more. An error is final: bytes that can't
  /// belong to such a stream, or an envelope over its limit.
  Result<std::optional<Piece>> next(std::string_view& input);
  /// Whether the stream may properly end here.
  bool at_boundary() const;

 private:
  enum class Where : std::uint8_t { between, object, envelope, items, done };

  std::optional<Piece> scan_object(std::string_view& input);
  Result<std::optional<Piece>> scan_envelope(std::string_view& input);
  Result<void> scan_between(std::string_view& input);
  Result<void> scan_items(std::string_view& input);
  bool scan_string(std::string_view input, std::size_t& at);
  Result<void> to_envelope(std::string_view text);
  void begin_object();

  Shape shape_;
  SplitLimits limits_;
  Where where_ = Where::between;
  std::size_t depth_ = 0;
  bool in_string_ = false;
  bool escaped_ = false;
  bool oversized_ = false;
  std::string buffer_;    // the beginning of an object that came in parts
  std::string envelope_;  // of a list, without the items
  std::string last_key_;  // the last string at the list's first level
};

}  // namespace penstock::kube
