// A share of an operation's work. Every kernel takes a Slice and does only that share; shares of one operation write
// disjoint memory, and no result depends on how many shares there are.
#pragma once

#include <cstddef>
#include <cstdint>

namespace penstock::kernels::cpu {

struct Slice {
  std::uint32_t index = 0;
  std::uint32_t count = 1;
};

struct IndexRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// Share of `items` that are handed out in units of `unit`; the last unit may be short.
inline IndexRange split(std::size_t items, Slice slice, std::size_t unit = 1) {
  const std::size_t units = (items + unit - 1) / unit;
  const std::size_t begin = units * slice.index / slice.count * unit;
  const std::size_t end = units * (slice.index + 1) / slice.count * unit;
  return {begin < items ? begin : items, end < items ? end : items};
}

}  // namespace penstock::kernels::cpu
