// One format of tool calls: text in, content and calls out. Each format is one file that implements this. The text
// comes in any pieces; what was given out for all of them together does not depend on where they were cut.
// Owned by one OutputParser; one thread. Bounds: a parser keeps at most a marker's beginning, white space up to
// OutputWriter::space_bytes_max, and what may turn out not to be a call, up to JsonCall::held_bytes_max; time is
// linear.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "router/core/output/formats.hpp"
#include "router/core/output/output_writer.hpp"

namespace penstock::router {

class ToolSet;

class ToolParser {
 public:
  ToolParser() = default;
  ToolParser(const ToolParser&) = delete;
  ToolParser& operator=(const ToolParser&) = delete;
  virtual ~ToolParser() = default;

  void push(std::string_view text, OutputWriter& out) {
    pending_ += text;
    std::string_view rest = pending_;
    while (!rest.empty() && step(rest, out)) {
    }
    pending_.erase(0, pending_.size() - rest.size());
  }
  /// The text ends here: what was held back is given out.
  void finish(OutputWriter& out) { end(pending_, out); }

 protected:
  /// Takes from the front of `rest`, which is not empty. False: more text is needed, what is left then waits.
  virtual bool step(std::string_view& rest, OutputWriter& out) = 0;
  virtual void end(std::string_view rest, OutputWriter& out) = 0;

 private:
  std::string pending_;
};

/// `tools` outlives the parser. Not for ToolFormat::none.
std::unique_ptr<ToolParser> make_tool_parser(ToolFormat format, const ToolSet& tools);

std::unique_ptr<ToolParser> make_hermes_parser();
std::unique_ptr<ToolParser> make_llama3_json_parser(const ToolSet& tools);
std::unique_ptr<ToolParser> make_mistral_parser();
std::unique_ptr<ToolParser> make_qwen3_coder_parser(const ToolSet& tools);

/// Where `rest` stands to a marker that may begin it.
enum class AtMarker : std::uint8_t { no, unclear, yes };
inline AtMarker at_marker(std::string_view rest, std::string_view marker) {
  if (rest.starts_with(marker)) return AtMarker::yes;
  return marker.starts_with(rest) ? AtMarker::unclear : AtMarker::no;
}

/// Holds back the front of `rest`, which is not empty. False: as much is held as may be, nothing was taken.
inline bool hold_front(std::string_view& rest, std::string& held) {
  if (held.size() >= OutputWriter::space_bytes_max) return false;
  held += rest.front();
  rest.remove_prefix(1);
  return true;
}

/// Takes content up to `marker` and the marker itself. False: it is not there, content up to what may begin it is
/// taken.
inline bool take_content_to(std::string_view marker, std::string_view& rest, OutputWriter& out) {
  const std::size_t found = rest.find(marker);
  const std::size_t content = found == std::string_view::npos ? rest.size() - beginning_at_end(rest, marker) : found;
  out.content(rest.substr(0, content));
  rest.remove_prefix(found == std::string_view::npos ? content : content + marker.size());
  return found != std::string_view::npos;
}

}  // namespace penstock::router
