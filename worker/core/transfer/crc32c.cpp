// Slicing by four: messages are small, so portable code is quick enough.
#include <array>

#include "worker/core/transfer/wire.hpp"

namespace penstock::worker::transfer {
namespace {

using Tables = std::array<std::array<std::uint32_t, 256>, 4>;

constexpr Tables make_tables() {
  constexpr std::uint32_t reversed_polynomial = 0x82F63B78;
  Tables tables{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? reversed_polynomial : 0);
    tables[0][i] = crc;
  }
  for (std::uint32_t i = 0; i < 256; ++i) {
    for (std::size_t t = 1; t < 4; ++t) tables[t][i] = (tables[t - 1][i] >> 8) ^ tables[0][tables[t - 1][i] & 255];
  }
  return tables;
}
constexpr Tables tables = make_tables();

}  // namespace

std::uint32_t crc32c(std::uint32_t crc, base::BytesView bytes) {
  crc = ~crc;
  while (bytes.size() >= 4) {
    std::uint32_t word = 0;
    std::memcpy(&word, bytes.data(), 4);
    crc ^= word;
    crc = tables[3][crc & 255] ^ tables[2][(crc >> 8) & 255] ^ tables[1][(crc >> 16) & 255] ^ tables[0][crc >> 24];
    bytes = bytes.subspan(4);
  }
  for (std::byte byte : bytes) crc = (crc >> 8) ^ tables[0][(crc ^ std::to_integer<std::uint32_t>(byte)) & 255];
  return ~crc;
}

}  // namespace penstock::worker::transfer
