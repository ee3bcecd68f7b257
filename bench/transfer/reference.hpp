// What this machine itself can do at the moment, to measure lanes against: a plain copy on one core, and bytes through
// a loopback TCP socket between two processes, with nothing but read() and write(). One thread and one child process.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <vector>

#include "common/time/clock.hpp"

namespace penstock::worker::transfer {

class Reference {
 public:
  /// Of `bytes` a measurement. Throws std::runtime_error.
  explicit Reference(std::size_t bytes);
  ~Reference();
  Reference(const Reference&) = delete;
  Reference& operator=(const Reference&) = delete;

  /// Bytes a second.
  double copy();
  double loopback_tcp();

 private:
  SteadyClock clock_;
  std::vector<std::byte> source_, target_;
  int socket_ = -1;
  pid_t child_ = 0;
};

}  // namespace penstock::worker::transfer
