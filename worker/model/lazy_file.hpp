// A file at fixed addresses whose bytes are read when asked for and given back once they have been copied elsewhere, so
// that a loader's resident memory does not count the model twice. Not a mapping of the file: a file that shrinks while
// it is read is an error here, where touching a mapping would end the process.
// Owned by one object; one thread loads. Bounds: address space of the file's size; memory for what is loaded.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

#include "common/base/bytes.hpp"
#include "common/base/result.hpp"

namespace penstock::worker {

class LazyFile {
 public:
  /// Errors: not_found, or invalid_argument for what is no regular file or cannot be opened, data_loss if it is empty.
  static Result<LazyFile> open(const std::filesystem::path& path);

  LazyFile() = default;
  LazyFile(LazyFile&& other) noexcept;
  LazyFile& operator=(LazyFile&& other) noexcept;
  ~LazyFile();

  /// As many bytes as the file had when it was opened; zeros until they are loaded.
  base::BytesView bytes() const { return {data_, size_}; }
  bool contains(base::BytesView part) const {
    return part.data() >= data_ && part.data() + part.size() <= data_ + size_;
  }
  /// Reads `part`, a view into bytes(). Error: data_loss if the file has become shorter or cannot be read.
  Result<void> load(base::BytesView part) const;
  /// Gives the whole pages inside `part` back; they are zeros until loaded again.
  void drop(base::BytesView part) const;

 private:
  std::filesystem::path path_;
  int fd_ = -1;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// A small text file, whole. Errors: not_found; resource_exhausted beyond `bytes_max`.
Result<std::string> read_text_file(const std::filesystem::path& path, std::size_t bytes_max);

}  // namespace penstock::worker
