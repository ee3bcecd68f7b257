// What tells that a file is another than before: time, size and inode of what its path leads to. Kubernetes replaces
// files of Secrets and ConfigMaps by turning a link, which these see. A blocking call; any thread.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <optional>
#include <string>

namespace penstock::base {

struct FileStamp {
  std::int64_t seconds = 0, nanoseconds = 0, size = 0;
  std::uint64_t inode = 0;
  friend bool operator==(const FileStamp&, const FileStamp&) = default;
};

/// Nothing, with errno set, if the file isn't there or can't be reached.
inline std::optional<FileStamp> stamp_of(const std::string& path) {
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0) return std::nullopt;
  return FileStamp{status.st_mtim.tv_sec, status.st_mtim.tv_nsec, status.st_size, status.st_ino};
}

}  // namespace penstock::base
