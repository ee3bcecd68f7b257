// Calls of the Kubernetes API over HTTP/1.1 and verified TLS: a small pool of kept connections for calls, one
// connection for each watch. Every call has a deadline; what the server asks to repeat (429, 5xx with Retry-After) is
// repeated within it, and a 401 once with fresh credentials. Belongs to one executor that runs one thing at a time.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "common/kube/client/credentials.hpp"
#include "common/kube/client/probe.hpp"
#include "common/kube/core/cluster_config.hpp"
#include "common/kube/model/status.hpp"
#include "common/kube/model/write.hpp"
#include "common/log/logger.hpp"

namespace penstock::kube {

struct ClientOptions {
  Duration call_timeout = std::chrono::seconds(15);
  Duration connect_timeout = std::chrono::seconds(5);
  std::size_t connections_max = 8;           // for calls; more calls wait
  std::size_t response_bytes_max = 8 << 20;  // of a call
  unsigned tries_max = 10;
  std::string user_agent = "penstock";
  std::uint64_t seed = 1;  // of the jitter
  CredentialOptions credentials;
};

/// The content of a watch or a list, as it comes.
class ContentStream {
 public:
  virtual ~ContentStream() = default;
  /// The next bytes; empty at the proper end. Errors: deadline_exceeded (the stream stays usable), anything else is the
  /// end.
  virtual asio::awaitable<Result<std::string>> read(Duration timeout) = 0;
};

class Client {
 public:
  Client(asio::any_io_executor executor, ClusterConfig config, ClientOptions options, Probe probe, log::Logger logger);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  /// The object of the answer. References must outlive the await.
  asio::awaitable<ApiResult<json::Value>> get(ResourceType type, const Key& key);
  /// PUT of a whole object; its metadata.resourceVersion is the precondition.
  asio::awaitable<ApiResult<json::Value>> replace(ResourceType type, const Key& key, const json::Object& body);
  /// Anything but EmitEvent, which is for the Recorder (see execute.hpp). Of the object that was written the answer has
  /// the metadata, without managedFields; an API server that can't leave the rest out sends it as well.
  asio::awaitable<ApiResult<json::Value>> execute(const Write& write, DryRun dry_run = DryRun::no);
  /// A GET of any path: discovery ("/apis/scheduling.k8s.io/v1beta1"), "/version".
  asio::awaitable<ApiResult<json::Value>> get_path(std::string target);
  asio::awaitable<ApiResult<json::Value>> call(const WriteRequest& request, Duration timeout);

  /// A GET whose content is streamed, on a connection of its own. `verb` is "list" or "watch".
  asio::awaitable<ApiResult<std::unique_ptr<ContentStream>>> open(std::string_view verb, std::string target,
                                                                  Duration head_timeout);

  const ClientOptions& options() const;
  const ClusterConfig& config() const;
  const Probe& probe() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace penstock::kube
