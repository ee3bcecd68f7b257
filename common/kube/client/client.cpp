#include "common/kube/client/client.hpp"

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/json/serialize.hpp>
#include <utility>
#include <vector>

#include "common/async/deadline.hpp"
#include "common/http/client.hpp"
#include "common/kube/core/managed_fields.hpp"
#include "common/time/random.hpp"

namespace penstock::kube {
namespace {

constexpr std::size_t refusal_bytes_max = 64 << 10;
constexpr Duration refusal_timeout = std::chrono::seconds(5);
constexpr Duration default_retry_after = std::chrono::seconds(1);

/// How much of the object is wanted back.
enum class Wanted : std::uint8_t { object, metadata };

std::string_view accept(Wanted wanted) {
  switch (wanted) {
    case Wanted::object:
      return "application/json";
    case Wanted::metadata:
      return "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
  }
  return "";
}

json::Limits answer_limits() {
  json::Limits limits;
  limits.keys_max = 200'000;
  return limits;
}

/// Worth repeating as it is: the server says that it did not do it, and when to come again.
bool is_repeatable(const ApiStatus& status) {
  return status.code == 429 || (status.code >= 500 && status.retry_after);
}

std::string host_header(const ClusterConfig& config) {
  const bool is_v6 = config.host.find(':') != std::string::npos;
  return (is_v6 ? "[" + config.host + "]" : config.host) + ":" + std::to_string(config.port);
}

class HttpContent final : public ContentStream {
 public:
  explicit HttpContent(std::unique_ptr<http::Client> connection) : connection_(std::move(connection)) {}
  asio::awaitable<Result<std::string>> read(Duration timeout) override { return connection_->read(timeout); }

 private:
  std::unique_ptr<http::Client> connection_;
};

}  // namespace

struct Client::Impl {
  struct Idle {
    std::unique_ptr<http::Client> connection;
    std::uint64_t generation = 0;
  };

  Impl(asio::any_io_executor executor, ClusterConfig config, ClientOptions options_, Probe probe_, log::Logger logger_)
      : options(std::move(options_)),
        probe(std::move(probe_)),
        credentials(std::move(config), options.credentials, std::move(logger_)),
        random(options.seed),
        freed(std::move(executor)) {
    freed.expires_at(asio::steady_timer::time_point::max());
  }

  const ClusterConfig& config() const { return credentials.config(); }

  std::unique_ptr<http::Client> make_connection(const Credentials::Current& current) const {
    http::ClientOptions made;
    made.host = config().host;
    made.port = config().port;
    made.tls = current.tls;
    made.connect_timeout = options.connect_timeout;
    made.response_bytes_max = options.response_bytes_max;
    return std::make_unique<http::Client>(std::move(made));
  }

  http::ClientRequest make_request(const WriteRequest& request, const Credentials::Current& current,
                                   Wanted wanted = Wanted::object) const {
    http::ClientRequest made(std::string(request.method), config().base_path + request.target);
    made.headers.add("host", host_header(config()));
    made.headers.add("user-agent", options.user_agent);
    made.headers.add("accept", accept(wanted));
    if (!current.token.empty()) made.headers.add("authorization", "Bearer " + current.token);
    if (!request.body.empty()) made.headers.add("content-type", request.content_type);
    made.body = request.body;
    return made;
  }

  ClientOptions options;
  Probe probe;
  Credentials credentials;
  Random random;
  std::vector<Idle> idle;
  std::size_t in_use = 0;
  asio::steady_timer freed;  // cancelled, one waiter at a time, when a connection comes back
};

namespace {

/// One of the pool's connections, given back when it goes out of scope, also when the call is cancelled.
class Slot {
 public:
  Slot(std::size_t& in_use, asio::steady_timer& freed) : in_use_(in_use), freed_(freed) { ++in_use_; }
  ~Slot() {
    --in_use_;
    freed_.cancel_one();
  }
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;

 private:
  std::size_t& in_use_;
  asio::steady_timer& freed_;
};

ApiStatus late() {
  return no_answer(make_error(ErrorCode::deadline_exceeded, "the time given is over"));
}

}  // namespace

Client::Client(asio::any_io_executor executor, ClusterConfig config, ClientOptions options, Probe probe,
               log::Logger logger)
    : impl_(std::make_unique<Impl>(std::move(executor), std::move(config), std::move(options), std::move(probe),
                                   std::move(logger))) {}
Client::~Client() = default;

const ClientOptions& Client::options() const {
  return impl_->options;
}
const ClusterConfig& Client::config() const {
  return impl_->config();
}
const Probe& Client::probe() const {
  return impl_->probe;
}

namespace {

/// One request and its answer on a pooled connection.
template <class Impl>
asio::awaitable<ApiResult<http::Response>> exchange(Impl& impl, const WriteRequest& request, Wanted wanted,
                                                    TimePoint deadline) {
  const SteadyClock clock;
  while (impl.in_use >= impl.options.connections_max) {
    if (clock.now() >= deadline) co_return late();
    async::Watchdog watchdog(impl.freed.get_executor(), deadline - clock.now(), [&impl] { impl.freed.cancel(); });
    co_await impl.freed.async_wait(asio::as_tuple(asio::use_awaitable));
  }
  const Slot slot(impl.in_use, impl.freed);
  Result<const Credentials::Current*> current = co_await impl.credentials.current();
  if (!current) co_return no_answer(current.error());
  const std::uint64_t generation = (*current)->generation;
  std::unique_ptr<http::Client> connection;
  while (!impl.idle.empty() && connection == nullptr) {
    if (impl.idle.back().generation == generation) connection = std::move(impl.idle.back().connection);
    impl.idle.pop_back();
  }
  if (connection == nullptr) connection = impl.make_connection(**current);
  http::ClientRequest sent = impl.make_request(request, **current, wanted);
  const Duration left = deadline - clock.now();
  if (left <= Duration(0)) co_return late();
  Result<http::Response> answer = co_await connection->request(std::move(sent), left);
  if (!answer) co_return no_answer(answer.error());
  impl.idle.push_back({std::move(connection), generation});
  co_return std::move(*answer);
}

ApiResult<json::Value> read_answer(const http::Response& answer, Wanted wanted) {
  if (answer.status < 200 || answer.status > 299) {
    return parse_status(answer.status, answer.body, answer.headers.find("retry-after"));
  }
  if (answer.body.empty()) return json::Value(nullptr);
  ManagedFieldsFilter filter;
  const std::string_view text = wanted == Wanted::metadata ? filter.without(answer.body) : answer.body;
  auto parsed = json::parse(text, answer_limits());
  if (parsed) return std::move(*parsed);
  return no_answer(make_error(ErrorCode::data_loss, "the answer is not JSON: " + parsed.error().message));
}

/// A request until it has an answer that is worth giving back.
template <class Impl>
asio::awaitable<ApiResult<json::Value>> repeat(Impl& impl, const WriteRequest& request, Wanted wanted,
                                               Duration timeout) {
  const SteadyClock clock;
  const TimePoint start = clock.now(), deadline = start + timeout;
  bool renewed = false;
  for (unsigned tries = 1;; ++tries) {
    const TimePoint sent_at = clock.now();
    ApiResult<http::Response> answer = co_await exchange(impl, request, wanted, deadline);
    ApiResult<json::Value> result = answer ? read_answer(*answer, wanted) : ApiResult<json::Value>(answer.error());
    impl.probe.count_call(request.verb, answer ? answer->status : 0);
    if (result) {
      impl.probe.call_seconds.observe(clock.now() - start);
      co_return result;
    }
    const ApiStatus& status = result.error();
    if (status.code == 401 && !renewed) {
      renewed = true;
      impl.credentials.reject(sent_at);
      continue;
    }
    const Duration asked = status.retry_after.value_or(default_retry_after);
    const auto jitter = Duration(static_cast<Duration::rep>(0.5 * impl.random.uniform() * 1e9));
    if (!is_repeatable(status) || tries >= impl.options.tries_max || clock.now() + asked + jitter >= deadline) {
      impl.probe.call_seconds.observe(clock.now() - start);
      co_return result;
    }
    co_await async::pause(asked + jitter);
  }
}

}  // namespace

asio::awaitable<ApiResult<json::Value>> Client::call(const WriteRequest& request, Duration timeout) {
  co_return co_await repeat(*impl_, request, Wanted::object, timeout);
}

asio::awaitable<ApiResult<json::Value>> Client::get(ResourceType type, const Key& key) {
  WriteRequest request{"get", "GET", type.path(key), "", ""};
  co_return co_await call(request, impl_->options.call_timeout);
}

asio::awaitable<ApiResult<json::Value>> Client::get_path(std::string target) {
  WriteRequest request{"raw", "GET", std::move(target), "", ""};
  co_return co_await call(request, impl_->options.call_timeout);
}

asio::awaitable<ApiResult<json::Value>> Client::replace(ResourceType type, const Key& key, const json::Object& body) {
  WriteRequest request{"update", "PUT", type.path(key), "application/json", boost::json::serialize(body)};
  co_return co_await call(request, impl_->options.call_timeout);
}

namespace {

struct ToRequest {
  DryRun dry_run;
  template <class T>
  std::optional<WriteRequest> operator()(const T& write) const {
    return to_request(write, dry_run);
  }
  std::optional<WriteRequest> operator()(const EmitEvent&) const { return std::nullopt; }
};

}  // namespace

asio::awaitable<ApiResult<json::Value>> Client::execute(const Write& write, DryRun dry_run) {
  const std::optional<WriteRequest> request = std::visit(ToRequest{dry_run}, write);
  if (!request) co_return no_answer(make_error(ErrorCode::unsupported, "events are written by a Recorder"));
  co_return co_await repeat(*impl_, *request, Wanted::metadata, impl_->options.call_timeout);
}

asio::awaitable<ApiResult<std::unique_ptr<ContentStream>>> Client::open(std::string_view verb, std::string target,
                                                                        Duration head_timeout) {
  Impl& impl = *impl_;
  const SteadyClock clock;
  WriteRequest request{verb, "GET", std::move(target), "", ""};
  for (int tries = 1;; ++tries) {
    const TimePoint sent_at = clock.now();
    Result<const Credentials::Current*> current = co_await impl.credentials.current();
    if (!current) co_return no_answer(current.error());
    std::unique_ptr<http::Client> connection = impl.make_connection(**current);
    http::ClientRequest sent = impl.make_request(request, **current);
    Result<http::Response> head = co_await connection->start(std::move(sent), head_timeout);
    impl.probe.count_call(verb, head ? head->status : 0);
    if (!head) co_return no_answer(head.error());
    if (head->status == 200) {
      std::unique_ptr<ContentStream> content = std::make_unique<HttpContent>(std::move(connection));
      co_return content;
    }
    const TimePoint deadline = clock.now() + refusal_timeout;
    std::string body;
    while (body.size() < refusal_bytes_max) {
      Result<std::string> more = co_await connection->read(deadline - clock.now());
      if (!more || more->empty()) break;
      body += *more;
    }
    if (head->status == 401 && tries == 1) {
      impl.credentials.reject(sent_at);
      continue;
    }
    co_return parse_status(head->status, body, head->headers.find("retry-after"));
  }
}

}  // namespace penstock::kube
