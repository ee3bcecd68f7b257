// A chat template from a checkpoint: refused with a reason or rendered within its bounds, whatever it says.
#include "common/base/check.hpp"
#include "common/text/chat_template.hpp"
#include "tests/fuzz/input.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace penstock;
  constexpr std::string_view variables =
      R"({"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"","tool_calls":[]}],)"
      R"("tools":[{"type":"function","function":{"name":"f","parameters":{}}}],"add_generation_prompt":true,)"
      R"("bos_token":"<s>","eos_token":"</s>"})";
  const auto compiled = text::ChatTemplate::compile({reinterpret_cast<const char*>(data), size});
  if (!compiled) {
    PENSTOCK_CHECK(!compiled.error().message.empty());
    return 0;
  }
  const auto rendered = compiled->render(variables, 1'700'000'000);
  PENSTOCK_CHECK(!rendered || rendered->size() <= 4u << 20, "bytes", rendered ? rendered->size() : 0);
  return 0;
}
