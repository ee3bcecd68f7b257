// What a model may write, as content, reasoning and calls: the same events however the text is cut, calls numbered in
// order, whole characters only. The first byte chooses the formats, the second the size of the pieces.
#include <string>

#include "common/base/check.hpp"
#include "common/json/json.hpp"
#include "common/text/incremental_decoder.hpp"
#include "router/core/output/output_parser.hpp"
#include "tests/fuzz/input.hpp"

namespace {

using namespace penstock;  // NOLINT: one file
using router::OutputEvent;
using router::OutputEvents;

std::shared_ptr<const router::ToolSet> tools() {
  static const auto set = [] {
    const auto function = json::parse(
        R"({"parameters":{"properties":{"a":{"type":"string"},"b":{"type":"integer"},"c":{"type":["string","null"]}}}})");
    auto made = std::make_shared<router::ToolSet>();
    made->add("f", function->get_object());
    return std::shared_ptr<const router::ToolSet>(std::move(made));
  }();
  return set;
}

OutputEvents read(std::uint8_t chosen, std::string_view text, std::size_t piece_max) {
  router::OutputOptions options;
  options.tools = static_cast<router::ToolFormat>(chosen % 5);
  options.reasoning = static_cast<router::ReasoningSplit::Begin>((chosen >> 4) % 3);
  options.calls_max = (chosen & 0x80) != 0 ? 1 : 0;
  options.tool_set = tools();
  router::OutputParser parser(options);
  OutputEvents events;
  fuzz::in_pieces(text, piece_max, [&](std::string_view piece) { parser.push(piece, events); });
  parser.finish(events);
  return events;
}

void check(const OutputEvents& events) {
  std::uint32_t calls = 0;
  for (const auto& event : events) {
    PENSTOCK_CHECK(!event.text.empty());
    PENSTOCK_CHECK((event.kind == OutputEvent::Kind::call) == !event.id.empty());
    if (event.kind == OutputEvent::Kind::call) PENSTOCK_CHECK(event.call == calls++, "call", event.call);
    if (event.kind == OutputEvent::Kind::arguments) PENSTOCK_CHECK(event.call + 1 == calls, "call", event.call);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  const std::uint8_t chosen = input.byte();
  const std::size_t piece_max = 1 + input.byte() % 16;
  // The decoder gives out valid text only.
  std::string text;
  (void)text::append_valid_utf8(input.rest(), text);
  const OutputEvents whole = read(chosen, text, text.size() + 1);
  check(whole);
  const OutputEvents pieces = read(chosen, text, piece_max);
  PENSTOCK_CHECK(pieces == whole, text);
  if (chosen % 5 == 0 && (chosen >> 4) % 3 == 0 && !text.empty()) {
    PENSTOCK_CHECK(whole.size() == 1 && whole.front().text == text, text);
  }
  return 0;
}
