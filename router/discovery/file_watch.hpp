// A small file that may change while we run: read again when its time, size or inode differ. Blocking calls, made off
// the I/O thread; one thread at a time. Bounded by bytes_max.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "common/base/file_stamp.hpp"
#include "common/base/result.hpp"

namespace penstock::router {

class FileWatch {
 public:
  explicit FileWatch(std::string path, std::size_t bytes_max = 16 << 20);

  /// The contents, if they may have changed since the last call that gave some. Errors: the file can't be read, or is
  /// too large; whoever asks keeps what was good.
  Result<std::optional<std::string>> poll();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::size_t bytes_max_;
  std::optional<base::FileStamp> seen_;
};

}  // namespace penstock::router
