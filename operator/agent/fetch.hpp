// Fetches one cache into a begun copy on the disk and publishes it: list, files one after the other with resume, digest
// of each before it counts, digest of the list at the end. Blocks on the disk, so it has an executor and thread of its
// own. What was fetched stays for the next try; what can't be right is dropped.
#pragma once

#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <string>

#include "common/time/clock.hpp"
#include "operator/agent/disk.hpp"
#include "operator/core/agent/node_agent.hpp"
#include "operator/core/agent/source.hpp"

namespace penstock::ctl {

struct FetchOptions {
  std::string hub = "https://huggingface.co";
  std::string token;      // for the hub; never sent to another host
  std::string ca_file;    // "" trusts the system's authorities
  std::string file_root;  // below which file:// may read; "" refuses file://
  std::string user_agent = "penstock-agent";
  Duration connect_timeout = std::chrono::seconds(10);
  Duration stall = std::chrono::seconds(60);  // without a byte
  unsigned tries_max = 5;                     // of one file, while each brings bytes
};

/// Shared with the thread that shows it and that may end the fetch.
struct FetchProgress {
  std::atomic<std::int64_t> bytes_done = 0, bytes = 0;  // of all files; bytes is 0 until the list is there
  std::atomic<bool> is_cancelled = false;
};

/// The copy as it was published. Errors are as FileTransfer's; aborted after a cancel. References outlive the await.
boost::asio::awaitable<Result<HeldCopy>> fetch(AgentTask task, const Disk& disk, const FetchOptions& options,
                                               FetchProgress& progress);

}  // namespace penstock::ctl
