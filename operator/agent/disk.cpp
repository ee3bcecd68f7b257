#include "operator/agent/disk.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json/serialize.hpp>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "common/json/json.hpp"
#include "operator/core/cache.hpp"

namespace penstock::ctl {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view record_name = ".penstock-cache.json", partial_suffix = ".partial";
constexpr std::size_t block_bytes = 1 << 20;

Error failure(const std::string& what, int number) {
  const bool full = number == ENOSPC || number == EDQUOT || number == EFBIG;
  return make_error(full ? ErrorCode::resource_exhausted : ErrorCode::internal, what + ": " + std::strerror(number));
}

/// A file or a folder reaches the disk.
Result<void> sync_path(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return failure(path, errno);
  const bool done = ::fsync(descriptor) == 0;
  const int number = errno;
  ::close(descriptor);
  if (!done) return failure(path, number);
  return {};
}

Result<void> write_record(const std::string& path, const HeldCopy& copy) {
  const json::Object record{{"cache", copy.cache},
                            {"uri", copy.uri},
                            {"revision", copy.revision},
                            {"digest", copy.digest},
                            {"bytes", copy.bytes}};
  {
    std::ofstream out(path, std::ios::trunc);
    out << boost::json::serialize(record);
    if (!out.flush()) return failure(path, errno);
  }
  return sync_path(path);
}

std::optional<HeldCopy> read_record(const fs::path& folder) {
  std::ifstream in(folder / record_name);
  std::ostringstream text;
  text << in.rdbuf();
  const auto parsed = json::parse(text.str());
  const auto* record = parsed ? parsed->if_object() : nullptr;
  if (record == nullptr) return std::nullopt;
  HeldCopy copy;
  copy.cache = kube::text_at(*record, {"cache"}).value_or("");
  copy.uri = kube::text_at(*record, {"uri"}).value_or("");
  copy.revision = kube::text_at(*record, {"revision"}).value_or("");
  copy.digest = kube::text_at(*record, {"digest"}).value_or("");
  copy.bytes = kube::integer_at(*record, {"bytes"}).value_or(0);
  struct stat facts{};
  if (::stat((folder / record_name).c_str(), &facts) == 0)
    copy.last_used = kube::Timestamp::from_seconds(facts.st_mtime);
  // A record that was carried to another folder says nothing about this one.
  if (copy.cache.empty() || copy.cache != cache_of_folder(folder.filename().string())) return std::nullopt;
  return copy;
}

}  // namespace

// --- FileDigest ---

void FileDigest::start_git(std::uint64_t bytes) {
  git_.emplace(digest::Algorithm::sha1);
  const std::string head = "blob " + std::to_string(bytes);
  git_->add({head.c_str(), head.size() + 1});  // with the zero byte
}

void FileDigest::add(std::string_view bytes) {
  sha256_.add(bytes);
  if (git_) git_->add(bytes);
}

// --- PartialFile ---

PartialFile::~PartialFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

PartialFile::PartialFile(PartialFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), path_(std::move(other.path_)) {}

Result<std::uint64_t> PartialFile::size() const {
  struct stat facts{};
  if (::fstat(descriptor_, &facts) != 0) return failure(path_, errno);
  return static_cast<std::uint64_t>(facts.st_size);
}

Result<void> PartialFile::add_to(FileDigest& digest) const {
  std::string block(block_bytes, '\0');
  for (off_t at = 0;;) {
    const ssize_t count = ::pread(descriptor_, block.data(), block.size(), at);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return failure(path_, errno);
    if (count == 0) return {};
    digest.add(std::string_view(block.data(), static_cast<std::size_t>(count)));
    at += count;
  }
}

Result<void> PartialFile::truncate() {
  if (::ftruncate(descriptor_, 0) != 0) return failure(path_, errno);
  return {};
}

Result<void> PartialFile::append(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return failure(path_, errno);
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  return {};
}

Result<void> PartialFile::sync() {
  if (::fdatasync(descriptor_) != 0) return failure(path_, errno);
  return {};
}

// --- Disk ---

std::string Disk::copy_folder(const std::string& cache) const {
  return cache_folder(folder_, cache);
}

std::string Disk::begun_folder(const std::string& cache) const {
  const fs::path copy(copy_folder(cache));
  return (copy.parent_path() / ("." + copy.filename().string() + std::string(partial_suffix))).string();
}

Result<void> Disk::check() const {
  if (::access(folder_.c_str(), W_OK | X_OK) != 0) return failure(folder_ + " can't be written to", errno);
  return {};
}

Result<DiskFigures> Disk::figures() const {
  struct statvfs facts{};
  if (::statvfs(folder_.c_str(), &facts) != 0) return failure(folder_, errno);
  return DiskFigures{static_cast<std::int64_t>(facts.f_blocks * facts.f_frsize),
                     static_cast<std::int64_t>(facts.f_bavail * facts.f_frsize)};
}

Result<void> Disk::check_room() const {
  PENSTOCK_TRY(const DiskFigures now, figures());
  if (now.available_bytes > reserve_bytes_) return {};
  return make_error(ErrorCode::resource_exhausted,
                    "the disk is full: what is left is the reserve of " + std::to_string(reserve_bytes_) + " bytes");
}

std::vector<HeldCopy> Disk::copies() const {
  std::vector<HeldCopy> out;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder_, ignored)) {
    if (!entry.is_directory(ignored) || cache_of_folder(entry.path().filename().string()).empty()) continue;
    if (auto copy = read_record(entry.path())) out.push_back(std::move(*copy));
  }
  return out;
}

std::map<std::string, std::int64_t> Disk::begun() const {
  std::map<std::string, std::int64_t> out;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder_, ignored)) {
    std::string name = entry.path().filename().string();
    if (!entry.is_directory(ignored) || !name.starts_with('.') || !name.ends_with(partial_suffix)) continue;
    name = name.substr(1, name.size() - 1 - partial_suffix.size());
    if (cache_of_folder(name).empty()) continue;
    std::int64_t bytes = 0;
    for (const auto& file : fs::recursive_directory_iterator(entry.path(), ignored)) {
      if (file.is_regular_file(ignored)) bytes += static_cast<std::int64_t>(file.file_size(ignored));
    }
    out[cache_of_folder(name)] = bytes;
  }
  return out;
}

Result<PartialFile> Disk::open(const std::string& cache, const std::string& name) const {
  const fs::path path = fs::path(begun_folder(cache)) / name;
  std::error_code code;
  fs::create_directories(path.parent_path(), code);
  if (code) return failure(path.parent_path().string(), code.value());
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (descriptor < 0) return failure(path.string(), errno);
  return PartialFile(descriptor, path.string());
}

void Disk::keep_only(const std::string& cache, const std::vector<std::string>& names) const {
  const fs::path root(begun_folder(cache));
  std::error_code ignored;
  std::vector<fs::path> gone;
  for (const auto& file : fs::recursive_directory_iterator(root, ignored)) {
    if (file.is_directory(ignored)) continue;
    const std::string name = file.path().lexically_relative(root).generic_string();
    if (std::find(names.begin(), names.end(), name) == names.end()) gone.push_back(file.path());
  }
  for (const auto& path : gone) fs::remove(path, ignored);
}

Result<void> Disk::publish(const HeldCopy& copy) const {
  const std::string from = begun_folder(copy.cache), to = copy_folder(copy.cache);
  PENSTOCK_TRY_VOID(write_record(from + "/" + std::string(record_name), copy));
  PENSTOCK_TRY_VOID(sync_path(from));
  if (::rename(from.c_str(), to.c_str()) != 0) return failure(to, errno);
  return sync_path(folder_);
}

Result<void> Disk::remove(const std::string& cache) const {
  // The record goes first: half of a copy must not count as one.
  std::error_code code;
  fs::remove(fs::path(copy_folder(cache)) / record_name, code);
  for (const auto& folder : {copy_folder(cache), begun_folder(cache)}) {
    fs::remove_all(folder, code);
    if (code) return failure(folder, code.value());
  }
  return {};
}

void Disk::touch(const std::string& cache) const {
  ::utimensat(AT_FDCWD, (copy_folder(cache) + "/" + std::string(record_name)).c_str(), nullptr, 0);
}

}  // namespace penstock::ctl
