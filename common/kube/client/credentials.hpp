// What proves who we are, while it changes: tokens and certificates are read again at most once a minute, and at once
// after a 401. A failed read keeps what was good. Files are read on a thread of its own. Belongs to one executor.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <memory>
#include <string>

#include "common/async/tls.hpp"
#include "common/base/result.hpp"
#include "common/kube/core/cluster_config.hpp"
#include "common/log/logger.hpp"
#include "common/time/clock.hpp"

namespace penstock::kube {

namespace asio = boost::asio;

struct CredentialOptions {
  Duration reread_every = std::chrono::seconds(60);
};

class Credentials {
 public:
  struct Current {
    async::TlsContextPtr tls;      // null: plain, on the own machine
    std::string token;             // "" none
    std::uint64_t generation = 0;  // of `tls`: a connection made with an older one is not used again
  };

  Credentials(ClusterConfig config, CredentialOptions options, log::Logger logger);
  ~Credentials();
  Credentials(const Credentials&) = delete;
  Credentials& operator=(const Credentials&) = delete;

  /// Good until the next co_await. The error is of the first read only.
  asio::awaitable<Result<const Current*>> current();
  /// A request that started at this time was answered 401: what is older than it is read again at the next current().
  void reject(TimePoint request_started);

  const ClusterConfig& config() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace penstock::kube
