// A small file that may change while we run: read again when its time, size or inode differ. Blocking calls, made off
// the I/O thread; one thread at a time. Bounded by bytes_max.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

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
  struct Stamp {
    std::int64_t seconds = 0, nanoseconds = 0, size = 0;
    std::uint64_t inode = 0;
    friend bool operator==(const Stamp&, const Stamp&) = default;
  };
  std::string path_;
  std::size_t bytes_max_;
  std::optional<Stamp> seen_;
};

}  // namespace penstock::router
