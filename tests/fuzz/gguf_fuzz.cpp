// A GGUF file's structure and the model that its metadata describe.
#include <cstddef>
#include <cstdint>

#include "worker/model/gguf.hpp"
#include "worker/model/model_spec.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace penstock;
  const auto file = worker::GgufFile::parse({reinterpret_cast<const std::byte*>(data), size});
  if (!file) return 0;
  (void)file->tensors();
  (void)file->texts("tokenizer.ggml.tokens");
  (void)file->int32s("tokenizer.ggml.token_type");
  (void)worker::spec_from_gguf(*file);
  return 0;
}
