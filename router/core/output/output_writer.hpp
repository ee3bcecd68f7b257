// Where the formats' parsers write: numbers the calls, gives them ids, and keeps the white space around calls and
// thoughts out of the content, since it belongs to the format. Owned by one OutputParser; one thread. Bounds: white
// space that waits is at most `space_bytes_max`; a longer run passes through.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/time/random.hpp"
#include "router/core/output/events.hpp"

namespace penstock::router {

enum class CallIdStyle : std::uint8_t {
  long_hex,    // "call_" and 24 hex digits, as OpenAI's look
  nine_chars,  // what the templates of Mistral's models insist on when they are given back
};

class OutputWriter {
 public:
  static constexpr std::size_t space_bytes_max = 256;

  /// `calls_max` 0: any number. After that many calls nothing more is taken.
  OutputWriter(CallIdStyle style, std::uint64_t id_seed, std::uint32_t calls_max)
      : style_(style), random_(id_seed), calls_max_(calls_max) {}

  void content(std::string_view text) { add(OutputEvent::Kind::content, text); }
  void reasoning(std::string_view text) { add(OutputEvent::Kind::reasoning, text); }
  /// The thought is over; white space at its end is left out.
  void end_reasoning() { drop_space(); }
  void begin_call(std::string_view name);
  /// Of the call that was begun last.
  void arguments(std::string_view json);
  void end_call() { ++calls_ended_; }
  /// Nothing comes any more: white space that waits is shown, unless it follows a call.
  void finish();

  std::uint32_t calls_begun() const { return calls_begun_; }
  bool is_full() const { return calls_max_ > 0 && calls_ended_ >= calls_max_; }
  void take(OutputEvents& out);

 private:
  void add(OutputEvent::Kind kind, std::string_view text);
  void drop_space();
  std::string next_id();

  CallIdStyle style_;
  Random random_;
  std::uint32_t calls_max_;
  OutputEvents events_;
  std::string space_;  // at the end of what was written, of `space_kind_`
  OutputEvent::Kind space_kind_ = OutputEvent::Kind::content;
  bool run_passes_ = false;     // this run of white space was too long to wait
  bool is_after_call_ = false;  // nothing but white space has come since a call began
  std::uint32_t calls_begun_ = 0;
  std::uint32_t calls_ended_ = 0;
};

inline bool is_space(char c) {
  return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}
/// How many bytes at the end of `text` are a beginning of `marker`, which may still become it.
std::size_t beginning_at_end(std::string_view text, std::string_view marker);

}  // namespace penstock::router
