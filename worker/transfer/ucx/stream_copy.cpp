#include "worker/transfer/ucx/stream_copy.hpp"

#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace penstock::worker::transfer {

#if defined(__SSE2__)

// Vectors of 16 bytes do: the memory is slower, and every x86-64 has them.
void stream_copy(std::byte* target, const std::byte* source, std::size_t bytes) {
  constexpr std::size_t line = 64, vector = 16;
  constexpr std::size_t ahead = 1024;            // prefetch distance: within a page or two of what is read
  constexpr std::size_t small_bytes = 32 << 10;  // fits the first cache: no point in going past it
  const std::size_t before = -reinterpret_cast<std::uintptr_t>(target) % line;
  if (bytes < small_bytes) {
    std::memcpy(target, source, bytes);
    return;
  }
  std::memcpy(target, source, before);
  std::size_t at = before;
  for (; at + line <= bytes; at += line) {
    const auto* from = reinterpret_cast<const __m128i*>(source + at);
    auto* to = reinterpret_cast<__m128i*>(target + at);
    _mm_prefetch(reinterpret_cast<const char*>(source) + at + ahead, _MM_HINT_NTA);
    __m128i values[line / vector];
    for (std::size_t i = 0; i < line / vector; ++i) values[i] = _mm_loadu_si128(from + i);
    for (std::size_t i = 0; i < line / vector; ++i) _mm_stream_si128(to + i, values[i]);
  }
  std::memcpy(target + at, source + at, bytes - at);
  _mm_sfence();
}

#else

void stream_copy(std::byte* target, const std::byte* source, std::size_t bytes) {
  std::memcpy(target, source, bytes);
}

#endif

}  // namespace penstock::worker::transfer
