// A Hugging Face config.json: a model or a sentence.
#include "common/base/check.hpp"
#include "tests/fuzz/input.hpp"
#include "worker/model/model_spec.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace penstock;
  const auto spec = worker::spec_from_config({reinterpret_cast<const char*>(data), size});
  PENSTOCK_CHECK(spec || !spec.error().message.empty());
  return 0;
}
