// Finds stop strings in streamed text. Holds back only the part that could still become a stop string. The match that
// is complete first wins (the longest of those that end together), so the result does not depend on how the text was
// split. Owned by one request; not for two threads at once. Memory: 8 bytes a byte of stop string, plus what is held.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::text {

/// Whether the stop string itself is given out before the end.
enum class IncludeStop : std::uint8_t { no, yes };

class StopMatcher {
 public:
  /// Empty strings are ignored. Without stop strings everything passes straight through.
  StopMatcher(const std::vector<std::string>& stops, IncludeStop include);

  /// Takes the text of one more token (perhaps empty); adds what is safe to show to `out`. True once a stop string is
  /// complete; after that nothing more is taken.
  bool push(std::string_view delta, std::string& out);
  /// The stream ended without a stop string: adds what was held back.
  void flush(std::string& out);

  bool stopped() const { return stopped_; }
  /// Index in the constructor's list of the string that matched.
  std::size_t stop_index() const { return stop_index_; }
  /// Tokens pushed, up to and including the one that completed the stop string.
  std::size_t tokens() const { return tokens_; }
  /// Bytes that wait.
  std::size_t held_bytes() const { return held_.size(); }

 private:
  struct Node {
    std::uint32_t first_child = 0, sibling = 0;  // 0: none
    std::uint32_t fail = 0;                      // the longest proper suffix that is also a prefix of a stop string
    std::uint32_t depth = 0;
    std::uint32_t stop = 0;  // 1 + index of the longest stop string that ends here, 0: none
    unsigned char byte = 0;
  };
  std::uint32_t child(std::uint32_t node, unsigned char byte) const;
  std::uint32_t add_child(std::uint32_t node, unsigned char byte);
  std::uint32_t step(std::uint32_t node, unsigned char byte) const;
  void link_failures();

  std::vector<Node> nodes_;
  std::vector<std::size_t> lengths_;  // of the stop strings
  std::string held_;
  std::uint32_t state_ = 0;
  std::size_t stop_index_ = 0, tokens_ = 0;
  bool stopped_ = false;
  IncludeStop include_;
};

}  // namespace penstock::text
