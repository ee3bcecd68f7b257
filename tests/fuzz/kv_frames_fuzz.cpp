// KV transfer messages: whatever decodes must encode to something that decodes to the same.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "common/base/check.hpp"
#include "worker/core/transfer/wire.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace penstock;
  using namespace penstock::worker::transfer;
  base::Bytes bytes(size);
  if (size > 0) std::memcpy(bytes.data(), data, size);
  if (bytes.size() >= wire_header_bytes) {
    // A right length and checksum, so that the bodies are reached.
    const auto body_bytes = static_cast<std::uint32_t>(bytes.size() - wire_header_bytes);
    std::memcpy(bytes.data() + 8, &body_bytes, 4);
    std::memset(bytes.data() + 12, 0, 4);
    const std::uint32_t crc = crc32c(0, bytes);
    std::memcpy(bytes.data() + 12, &crc, 4);
  }
  auto envelope = decode(bytes);
  if (!envelope) return 0;
  auto again = decode(encode(*envelope));
  PENSTOCK_CHECK(again && *again == *envelope);
  return 0;
}
