// The text of one choice as it is detokenised, to content, reasoning and calls of tools: first the thought is split
// off, then the format's parser reads the rest. What comes out, joined, does not depend on how the text was cut, also
// not within a marker or a character. Pure and synchronous; knows no workers, so a choice that moves to another one
// goes on. Owned by one choice; one thread. Bounds: see the parts; a character's beginning of 3 bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "router/core/output/formats.hpp"
#include "router/core/output/output_writer.hpp"
#include "router/core/output/reasoning.hpp"
#include "router/core/output/tool_parser.hpp"
#include "router/core/output/tool_set.hpp"

namespace penstock::router {

struct OutputOptions {
  ToolFormat tools = ToolFormat::none;  // none if the request has no tools, or none that may be called
  ReasoningSplit::Begin reasoning = ReasoningSplit::Begin::no_thought;
  std::shared_ptr<const ToolSet> tool_set;  // shared with the request; needed with `tools`
  std::uint32_t calls_max = 0;              // 0: any number
  std::string opening;                      // of a call, which the prompt ends with
  std::uint64_t id_seed = 0;                // of the calls' ids; differs between choices
};

class OutputParser {
 public:
  explicit OutputParser(OutputOptions options);

  /// Appends to `out`.
  void push(std::string_view text, OutputEvents& out);
  /// The text ends here; gives out what was held back.
  void finish(OutputEvents& out);

  bool has_calls() const { return writer_.calls_begun() > 0; }
  /// As many calls as there may be are complete; the rest of the text is not wanted.
  bool is_full() const { return writer_.is_full(); }

 private:
  void push_whole(std::string_view text);

  OutputOptions options_;
  OutputWriter writer_;
  ReasoningSplit reasoning_;
  std::unique_ptr<ToolParser> tools_;
  std::string answer_;      // reused
  std::string unfinished_;  // the beginning of a character
};

}  // namespace penstock::router
