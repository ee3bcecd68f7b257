// A file mapped read-only. Pages can be given back once their contents have been copied elsewhere, so that a loader's
// resident memory does not count the model twice. Owned by one object; any thread may read bytes().
#pragma once

#include <cstddef>
#include <filesystem>

#include "common/base/bytes.hpp"
#include "common/base/result.hpp"

namespace penstock::worker {

class MappedFile {
 public:
  /// Errors: not_found, or invalid_argument for what is no regular file, is empty or cannot be mapped.
  static Result<MappedFile> open(const std::filesystem::path& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  base::BytesView bytes() const { return {data_, size_}; }
  /// Lets the kernel drop the whole pages inside `part`, a view into some bytes(). They come back when read again.
  static void drop_pages(base::BytesView part);

 private:
  MappedFile(const std::byte* data, std::size_t size) : data_(data), size_(size) {}
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// A small text file, whole. Errors: not_found; resource_exhausted beyond `bytes_max`.
Result<std::string> read_text_file(const std::filesystem::path& path, std::size_t bytes_max);

}  // namespace penstock::worker
