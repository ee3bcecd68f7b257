// Splits an answer into the thought before it and the rest: <think>...</think>. A thought is only where an answer
// begins, or where the prompt has opened it already; markers elsewhere are text. White space around it is left out.
// Owned by one OutputParser; one thread. Holds at most a marker's beginning and OutputWriter::space_bytes_max.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "router/core/output/output_writer.hpp"

namespace penstock::router {

class ReasoningSplit {
 public:
  enum class Begin : std::uint8_t { no_thought, perhaps, in_thought };
  explicit ReasoningSplit(Begin begin);

  /// Writes the thought; what belongs to the answer is appended to `answer`.
  void push(std::string_view text, OutputWriter& out, std::string& answer);
  void finish(OutputWriter& out, std::string& answer);

 private:
  enum class State : std::uint8_t { before, opened, thought, closed, answer };
  bool step(std::string_view& rest, OutputWriter& out, std::string& answer);

  State state_;
  bool has_begun_ = false;  // a thought, with more than white space
  std::string space_;       // before what may be a marker
  std::string pending_;
};

}  // namespace penstock::router
