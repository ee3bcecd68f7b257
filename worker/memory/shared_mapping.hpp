// One mapping of a memory file, from its start, aligned so that huge pages can back it. Unmapped by the destructor; the
// descriptor stays the caller's. Owner: whoever holds the value; no thread of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "common/base/result.hpp"

namespace penstock::worker {

constexpr std::size_t huge_page_bytes = 2u << 20;

enum class MappingAccess : std::uint8_t { read_only, read_write };

class SharedMapping {
 public:
  /// Error: resource_exhausted, with the system's reason. `bytes` are within the file; the caller has checked.
  static Result<SharedMapping> map(int file, std::size_t bytes, MappingAccess access);

  SharedMapping() = default;
  SharedMapping(SharedMapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  SharedMapping& operator=(SharedMapping&&) = delete;
  ~SharedMapping();

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  /// The caller unmaps.
  std::byte* release() { return std::exchange(data_, nullptr); }
  /// The pages leave this process's memory; the file keeps them, and the next access maps them again.
  void drop_pages();

 private:
  SharedMapping(std::byte* data, std::size_t bytes) : data_(data), bytes_(bytes) {}
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace penstock::worker
