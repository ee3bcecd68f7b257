// Internal to common/async: what is behind TlsContext. `current()` from any thread; what it gives never changes.
#pragma once

#include <boost/asio/ssl/context.hpp>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/async/tls.hpp"
#include "common/base/file_stamp.hpp"

namespace penstock::async {

using SslContextPtr = std::shared_ptr<boost::asio::ssl::context>;  // shared: connections outlive a renewal

class TlsContext {
 public:
  using Make = Result<SslContextPtr> (*)(const TlsFiles& files);
  using Stamps = std::vector<std::optional<base::FileStamp>>;

  explicit TlsContext(SslContextPtr first) : current_(std::move(first)) {}

  SslContextPtr current() const {
    const std::lock_guard lock(mutex_);
    return current_;
  }
  void replace(SslContextPtr next) {
    const std::lock_guard lock(mutex_);
    current_ = std::move(next);
  }

  bool is_client = false;
  std::string server_name;  // of the peer, if not the host connected to

  // Of a context made from files, for renew().
  TlsFiles files;
  Make make = nullptr;
  Stamps stamps;  // of the files when they were last read whole

 private:
  mutable std::mutex mutex_;
  SslContextPtr current_;
};

}  // namespace penstock::async
