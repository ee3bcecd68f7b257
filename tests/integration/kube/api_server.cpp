#include "tests/integration/kube/api_server.hpp"

#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "common/async/deadline.hpp"
#include "tests/integration/http/test_certificate.hpp"

namespace penstock::kube {

Answer stream(std::vector<std::string> chunks, Answer::End end) {
  Answer answer;
  answer.chunks = std::move(chunks);
  answer.end = end;
  return answer;
}

TestKeys::TestKeys() {
  std::string pattern = "/tmp/penstock-kube-XXXXXX";
  if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp");
  folder_ = pattern;
  http::write_test_certificate(path("server.pem"), path("server-key.pem"));
  http::write_test_certificate(path("client.pem"), path("client-key.pem"));
}
TestKeys::~TestKeys() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}
std::string TestKeys::read(const std::string& name) const {
  std::ifstream file(folder_ / name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}
void TestKeys::write(const std::string& name, const std::string& text) const {
  std::ofstream(folder_ / name, std::ios::binary) << text;
}

ApiServer::ApiServer(boost::asio::io_context& io, const TestKeys& keys, const std::string& client_ca) {
  http::ServerOptions options;
  async::TlsFiles files{keys.path("server.pem"), keys.path("server-key.pem"), client_ca};
  options.tls = async::make_tls_server(files).value();
  server_ = std::make_unique<http::Server>(
      io.get_executor(), std::move(options),
      [this](http::Request request, http::ResponseWriter& writer) { return serve(std::move(request), writer); },
      log::Logger());
  port_ = server_->listen("127.0.0.1", 0).value();
}
ApiServer::~ApiServer() = default;

ClusterConfig ApiServer::config(const TestKeys& keys) const {
  ClusterConfig config;
  config.host = "127.0.0.1";
  config.port = port_;
  config.authority.file = keys.path("server.pem");
  return config;
}

std::vector<http::Request> ApiServer::seen_at(const std::string& path) const {
  std::vector<http::Request> found;
  for (const http::Request& request : seen) {
    if (request.path == path) found.push_back(request);
  }
  return found;
}

Answer ApiServer::answer_for(const http::Request& request) {
  auto& queue = queues_[request.path];
  if (!queue.empty()) {
    Answer answer = std::move(queue.front());
    queue.pop_front();
    return answer;
  }
  if (responder) {
    if (auto answer = responder(request)) return *answer;
  }
  return Answer(404, R"({"kind":"Status","code":404,"reason":"NotFound","message":"nothing is scripted"})");
}

boost::asio::awaitable<void> ApiServer::serve(http::Request request, http::ResponseWriter& writer) {
  seen.push_back(request);
  const Answer answer = answer_for(request);
  http::Headers headers;
  headers.add("content-type", "application/json");
  if (!answer.retry_after.empty()) headers.add("retry-after", answer.retry_after);
  writer.begin_stream(answer.status, headers);
  for (const std::string& chunk : answer.chunks) {
    if (answer.pause > Duration(0)) co_await async::pause(answer.pause);
    if (!co_await writer.write(chunk)) co_return;
  }
  switch (answer.end) {
    case Answer::End::close:
      (void)co_await writer.end();
      break;
    case Answer::End::cut:
      (void)co_await writer.write("");
      writer.fail();
      break;
    case Answer::End::hold:
      (void)co_await writer.write("");
      co_await async::pause(std::chrono::minutes(1));  // cancelled when the client goes
      break;
  }
}

void run(boost::asio::io_context& io, boost::asio::awaitable<void> task) {
  bool done = false;
  std::exception_ptr failure;
  boost::asio::co_spawn(io, std::move(task), [&](const std::exception_ptr& thrown) {
    failure = thrown;
    done = true;
  });
  ASSERT_TRUE(run_until(io, [&] { return done; })) << "the coroutine did not end in 10 s";
  if (failure) std::rethrow_exception(failure);
}

bool run_until(boost::asio::io_context& io, const std::function<bool()>& condition, Duration limit) {
  const SteadyClock clock;
  const TimePoint end = clock.now() + limit;
  while (!condition()) {
    if (clock.now() >= end) return false;
    io.restart();
    io.run_one_for(std::chrono::milliseconds(20));
  }
  return true;
}

ClientOptions quick_client() {
  ClientOptions options;
  options.call_timeout = std::chrono::seconds(5);
  options.connect_timeout = std::chrono::seconds(2);
  return options;
}

}  // namespace penstock::kube
