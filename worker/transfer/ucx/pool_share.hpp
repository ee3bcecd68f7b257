// Hands the KV pool's memory file to readers of the same user on this host: a Unix socket whose random name and token
// travel in the transport's address. The reader maps the file read-only; the pool's seals keep it from writing or
// cutting. A thread of its own answers, so that a reader never waits for the owner's I/O thread.
// Owner: UcxTransport. Bounds: one reader at a time, 100 ms each; 16 wait.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "common/base/result.hpp"
#include "worker/memory/shared_mapping.hpp"

namespace penstock::worker::transfer {

struct ShareKey {
  std::string name;  // of an abstract Unix socket; "": nothing is shared
  std::uint64_t token_high = 0;
  std::uint64_t token_low = 0;
};

class PoolShare {
 public:
  /// Null where the system doesn't let us. `pool_file` outlives it.
  static std::unique_ptr<PoolShare> start(int pool_file);
  PoolShare(const PoolShare&) = delete;
  PoolShare& operator=(const PoolShare&) = delete;
  ~PoolShare();

  const ShareKey& key() const { return key_; }

 private:
  PoolShare(int pool_file, int listener, int wake, ShareKey key);
  void run();
  void answer(int connection) const;

  const int pool_file_;
  const int listener_;
  const int wake_;
  const ShareKey key_;
  std::thread thread_;
};

/// The reader's side: connects, checks who answers, maps `bytes` of what comes. Every claim of the owner is checked:
/// its user, the file's kind, its size, and that it can't shrink under us. Waits at most 200 ms.
Result<SharedMapping> map_shared_pool(const ShareKey& key, std::uint64_t bytes);

}  // namespace penstock::worker::transfer
