// A safetensors file's header, and the same bytes as an index of shards.
#include <cstddef>
#include <cstdint>

#include "worker/model/safetensors.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace penstock;
  const base::BytesView bytes(reinterpret_cast<const std::byte*>(data), size);
  worker::TensorTable table;
  (void)worker::read_safetensors(bytes, table);
  (void)worker::read_safetensors_index(base::as_text(bytes));
  return 0;
}
