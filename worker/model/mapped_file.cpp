#include "worker/model/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

namespace penstock::worker {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

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

}  // namespace

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  PENSTOCK_TRY(const std::size_t size, regular_size(file, path));
  if (size == 0) return file_error(ErrorCode::data_loss, path, "is empty");
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (data == MAP_FAILED) {
    return file_error(ErrorCode::invalid_argument, path, std::string("cannot be mapped: ") + std::strerror(errno));
  }
  return MappedFile(static_cast<const std::byte*>(data), size);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::drop_pages(base::BytesView part) {
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
  std::size_t done = 0;
  while (done < size) {
    const ssize_t count = ::read(file.get(), text.data() + done, size - done);
    if (count <= 0) return file_error(ErrorCode::data_loss, path, "cannot be read to its end");
    done += static_cast<std::size_t>(count);
  }
  return text;
}

}  // namespace penstock::worker
