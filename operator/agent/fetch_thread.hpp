// The thread on which the agent touches the disk and fetches: one task at a time, its end told on the caller's
// executor. A fetch blocks on the disk as it likes without holding up watches and health pages. Owner: the agent's
// strand; start() and cancel() from there. Bounded: one task.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <functional>
#include <memory>

#include "operator/agent/disk.hpp"
#include "operator/agent/fetch.hpp"

namespace penstock::ctl {

class FetchThread {
 public:
  /// What became of the task: the copy of a fetch, an empty one of a removal.
  using Done = std::function<void(const Result<HeldCopy>&)>;

  FetchThread(boost::asio::any_io_executor home, const Disk& disk, FetchOptions options, Done done);
  /// Cancels, and waits for the task's end: at most a stall.
  ~FetchThread();
  FetchThread(const FetchThread&) = delete;
  FetchThread& operator=(const FetchThread&) = delete;

  /// No task may be running.
  void start(AgentTask task);
  void cancel();
  const FetchProgress& progress() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;  // shared with an end that is still on its way home
};

}  // namespace penstock::ctl
