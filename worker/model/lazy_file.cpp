#include "worker/model/lazy_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "common/base/descriptor.hpp"

namespace penstock::worker {
namespace {

constexpr std::size_t read_bytes_max = std::size_t{64} << 20;  // of one system call

using base::Descriptor;

Error file_error(ErrorCode code, const std::filesystem::path& path, const std::string& why) {
  return make_error(code, path.string() + ": " + why);
}

Result<std::size_t> regular_size(const Descriptor& file, const std::filesystem::path& path) {
  if (file.get() < 0) {
    return file_error(errno == ENOENT ? ErrorCode::not_found : ErrorCode::invalid_argument, path,
                      std::string("cannot be opened: ") + std::strerror(errno));
  }
  struct stat status{};
  if (::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) {
    return file_error(ErrorCode::invalid_argument, path, "is no regular file");
  }
  return static_cast<std::size_t>(status.st_size);
}

/// Reads exactly `size` bytes at `offset`.
Result<void> read_exactly(int fd, const std::filesystem::path& path, std::byte* to, std::size_t size,
                          std::size_t offset) {
  std::size_t done = 0;
  while (done < size) {
    const std::size_t wanted = std::min(size - done, read_bytes_max);
    const ssize_t count = ::pread(fd, to + done, wanted, static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      return file_error(ErrorCode::data_loss, path, std::string("cannot be read: ") + std::strerror(errno));
    }
    if (count == 0) {
      return file_error(ErrorCode::data_loss, path,
                        "became shorter while it was read: it ends at byte " + std::to_string(offset + done));
    }
    done += static_cast<std::size_t>(count);
  }
  return {};
}

}  // namespace

Result<LazyFile> LazyFile::open(const std::filesystem::path& path) {
  Descriptor descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  PENSTOCK_TRY(const std::size_t size, regular_size(descriptor, path));
  if (size == 0) return file_error(ErrorCode::data_loss, path, "is empty");
  void* data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    return file_error(ErrorCode::resource_exhausted, path,
                      "there is no address space for its " + std::to_string(size) + " bytes");
  }
  LazyFile file;
  file.path_ = path;
  file.fd_ = descriptor.release();
  file.data_ = static_cast<std::byte*>(data);
  file.size_ = size;
  return file;
}

LazyFile::LazyFile(LazyFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

LazyFile& LazyFile::operator=(LazyFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

LazyFile::~LazyFile() {
  if (data_ != nullptr) ::munmap(data_, size_);
  if (fd_ >= 0) ::close(fd_);
}

Result<void> LazyFile::load(base::BytesView part) const {
  const auto offset = static_cast<std::size_t>(part.data() - data_);
  return read_exactly(fd_, path_, data_ + offset, part.size(), offset);
}

void LazyFile::drop(base::BytesView part) const {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = (reinterpret_cast<std::uintptr_t>(part.data()) + page - 1) / page * page;
  const auto end = reinterpret_cast<std::uintptr_t>(part.data() + part.size()) / page * page;
  // Advice only: a refusal costs memory, not correctness.
  if (begin < end) (void)::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

Result<std::string> read_text_file(const std::filesystem::path& path, std::size_t bytes_max) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  PENSTOCK_TRY(const std::size_t size, regular_size(file, path));
  if (size > bytes_max) {
    return file_error(ErrorCode::resource_exhausted, path,
                      "has " + std::to_string(size) + " bytes, more than " + std::to_string(bytes_max));
  }
  std::string text(size, '\0');
  PENSTOCK_TRY_VOID(read_exactly(file.get(), path, reinterpret_cast<std::byte*>(text.data()), size, 0));
  return text;
}

}  // namespace penstock::worker
