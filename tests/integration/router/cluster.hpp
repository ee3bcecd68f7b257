// A router with scripted workers and a client, all in one process over loopback. One thread: the test runs the
// executor until what it waits for is there, at most `patience`.
#pragma once

#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/async/tls.hpp"
#include "common/http/client.hpp"
#include "common/json/json.hpp"
#include "router/app/router_app.hpp"
#include "tests/support/fake_worker.hpp"

namespace penstock::test {

class Cluster {
 public:
  static constexpr Duration patience = std::chrono::seconds(20);

  explicit Cluster(std::vector<FakeWorkerOptions> workers, router::RouterConfig config = {}, Duration drain_grace = {});
  ~Cluster();

  template <class T>
  T run(boost::asio::awaitable<T> work) {
    std::optional<T> value;
    std::exception_ptr failure;
    boost::asio::co_spawn(io, std::move(work), [&](std::exception_ptr error, T result) {
      failure = error;
      value = std::move(result);
    });
    run_until([&] { return value.has_value(); });
    if (failure) std::rethrow_exception(failure);
    if (!value) throw std::runtime_error("the test waited too long");
    return std::move(*value);
  }
  template <class Condition>
  bool run_until(Condition condition) {
    const SteadyClock clock;
    for (const TimePoint end = clock.now() + patience; !condition() && clock.now() < end;) {
      io.run_one_for(std::chrono::milliseconds(50));
    }
    return condition();
  }

  http::Client client() const;
  Result<http::Response> post(const std::string& path, const std::string& body, http::Headers headers = {});
  Result<http::Response> get(const std::string& path, http::Headers headers = {});
  Result<http::Response> ask(http::ClientRequest request);
  /// Begins a request and goes on without it; its status stands in what is returned once it came, -1 for none.
  std::shared_ptr<int> post_later(const std::string& path, const std::string& body, http::Headers headers = {});
  Result<http::Response> admin(const std::string& path);
  /// The data of all events up to the end; the last is "[DONE]" if it came, "broken" if the connection ended early.
  std::vector<std::string> stream(const std::string& path, const std::string& body, http::Headers headers = {});
  /// The value of a series of /metrics, with its labels as they are printed; -1 if there is none.
  double metric(const std::string& series);

  boost::asio::io_context io{1};
  std::vector<std::unique_ptr<FakeWorker>> workers;
  std::shared_ptr<log::MemorySink> log = std::make_shared<log::MemorySink>();
  std::unique_ptr<router::RouterApp> app;
  async::TlsContextPtr client_tls;  // null: plain
};

json::Value parsed(std::string_view text);
/// The content of one choice over all chunks of a chat stream.
std::string content(const std::vector<std::string>& events, std::int64_t choice = 0);
std::string chat_body(const std::string& more);

}  // namespace penstock::test
