#include "tests/integration/router/cluster.hpp"

namespace penstock::test {
namespace {

boost::asio::awaitable<std::vector<std::string>> read_stream(http::Client client, http::ClientRequest request) {
  std::vector<std::string> events;
  auto head = co_await client.start(std::move(request), Cluster::patience);
  if (!head || head->status != 200) {
    events.push_back(head ? "status " + std::to_string(head->status) : head.error().message);
    co_return events;
  }
  for (;;) {
    auto event = co_await client.next_event(Cluster::patience);
    if (!event) {
      events.emplace_back("broken");
      co_return events;
    }
    if (!*event) co_return events;
    events.push_back((*event)->data);
  }
}

boost::asio::awaitable<Result<http::Response>> ask_once(http::Client client, http::ClientRequest request) {
  co_return co_await client.request(std::move(request), Cluster::patience);
}

http::ClientRequest json_post(const std::string& path, const std::string& body, http::Headers headers) {
  headers.set("content-type", "application/json");
  return http::ClientRequest("POST", path, std::move(headers), body);
}

}  // namespace

Cluster::Cluster(std::vector<FakeWorkerOptions> options, router::RouterConfig config, Duration drain_grace) {
  for (auto& one : options) {
    workers.push_back(std::make_unique<FakeWorker>(io.get_executor(), std::move(one)));
    config.worker.push_back(workers.back()->address());
  }
  config.port = 0;
  config.admin_port = 0;
  config.seed = 1;
  config.drain_grace = drain_grace;
  app = std::make_unique<router::RouterApp>(io, config, log::Logger(log, log::Level::info, log::Format::logfmt));
  const auto started = app->start();
  if (!started) throw std::runtime_error(started.error().message);
  if (workers.empty()) return;
  // Ready means that every worker has joined, so that choices do not depend on who was first.
  run_until([&] { return app->not_ready_reasons().empty() && app->ready_workers() == workers.size(); });
}

Cluster::~Cluster() {
  bool is_over = false;
  boost::asio::co_spawn(io, app->drain(), [&](std::exception_ptr) { is_over = true; });
  run_until([&] { return is_over; });
  for (auto& worker : workers) worker->die();
  io.poll();
  app.reset();
}

http::Client Cluster::client() const {
  http::ClientOptions options;
  options.port = app->port();
  options.tls = client_tls;
  return http::Client(options);
}

Result<http::Response> Cluster::ask(http::ClientRequest request) {
  return run(ask_once(client(), std::move(request)));
}

Result<http::Response> Cluster::post(const std::string& path, const std::string& body, http::Headers headers) {
  return ask(json_post(path, body, std::move(headers)));
}

std::shared_ptr<int> Cluster::post_later(const std::string& path, const std::string& body, http::Headers headers) {
  auto status = std::make_shared<int>(0);
  boost::asio::co_spawn(io, ask_once(client(), json_post(path, body, std::move(headers))),
                        [status](const std::exception_ptr&, const Result<http::Response>& response) {
                          *status = response ? response->status : -1;
                        });
  return status;
}

Result<http::Response> Cluster::get(const std::string& path, http::Headers headers) {
  return ask(http::ClientRequest("GET", path, std::move(headers)));
}

Result<http::Response> Cluster::admin(const std::string& path) {
  http::ClientOptions options;
  options.port = app->admin_port();
  return run(ask_once(http::Client(options), http::ClientRequest("GET", path)));
}

std::vector<std::string> Cluster::stream(const std::string& path, const std::string& body, http::Headers headers) {
  return run(read_stream(client(), json_post(path, body, std::move(headers))));
}

double Cluster::metric(const std::string& series) {
  const std::string page = "\n" + admin("/metrics").value().body;
  const std::size_t at = page.find("\n" + series + " ");
  return at == std::string::npos ? -1 : std::stod(page.substr(at + series.size() + 2));
}

json::Value parsed(std::string_view text) {
  auto value = json::parse(text);
  EXPECT_TRUE(value) << text;
  return value ? *value : json::Value();
}

std::string content(const std::vector<std::string>& events, std::int64_t choice) {
  std::string text;
  for (const auto& event : events) {
    if (!event.starts_with('{')) continue;
    const auto value = parsed(event);
    if (!value.as_object().contains("choices")) continue;
    for (const auto& one : value.at("choices").as_array()) {
      const auto* piece = one.at("delta").as_object().if_contains("content");
      if (one.at("index").as_int64() == choice && piece != nullptr) text += piece->as_string();
    }
  }
  return text;
}

std::string chat_body(const std::string& more) {
  return R"({"model":"fake","messages":[{"role":"user","content":"hello"}])" + more + "}";
}

}  // namespace penstock::test
