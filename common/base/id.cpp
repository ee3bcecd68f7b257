#include "common/base/id.hpp"

#include <sys/random.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <system_error>

namespace penstock::base {

std::string hex128(std::uint64_t high, std::uint64_t low) {
  char text[33];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(high),
                static_cast<unsigned long long>(low));
  return std::string(text, 32);
}

bool parse_hex128(std::string_view text, std::uint64_t& high, std::uint64_t& low) {
  if (text.size() != 32) return false;
  auto parse = [](std::string_view digits, std::uint64_t& out) {
    auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), out, 16);
    return error == std::errc{} && end == digits.data() + digits.size();
  };
  return parse(text.substr(0, 16), high) && parse(text.substr(16), low);
}

namespace {

void draw(char* bytes, std::size_t count) {
  while (count > 0) {
    ssize_t got = getrandom(bytes, count, 0);
    if (got < 0) {
      if (errno == EINTR) continue;
      throw std::system_error(errno, std::generic_category(), "getrandom");
    }
    bytes += got;
    count -= static_cast<std::size_t>(got);
  }
}

}  // namespace

void random_bytes(void* out, std::size_t count) {
  constexpr std::size_t id_bytes = 16;
  if (count > id_bytes) return draw(static_cast<char*>(out), count);
  // Ids are made several a request: they come from a block that is drawn at once. No byte is given twice, since none of
  // the programs forks.
  struct Block {
    std::array<char, 32 * id_bytes> bytes;
    std::size_t left = 0;
  };
  thread_local Block block;
  if (block.left < count) {
    draw(block.bytes.data(), block.bytes.size());
    block.left = block.bytes.size();
  }
  block.left -= count;
  std::memcpy(out, block.bytes.data() + block.left, count);
}

std::uint64_t random_seed() {
  std::uint64_t seed = 0;
  random_bytes(&seed, sizeof seed);
  return seed;
}

}  // namespace penstock::base
