// An OpenAI worker that answers at once, for routers that forward text: the peers that bench/router/compare measures.
// Penstock's own router is measured over penstock-worker --executor fake, which answers the same number of tokens.
// Usage: bench_mock_worker PORT. One thread.
#include <boost/asio/io_context.hpp>
#include <boost/json.hpp>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "common/http/routes.hpp"
#include "common/http/server.hpp"

namespace {

using penstock::http::Request;
using penstock::http::ResponseWriter;
namespace asio = boost::asio;

constexpr const char* model_json =
    R"({"object":"list","data":[{"id":"mock","object":"model","created":1,"owned_by":"bench"}]})";

std::string chunk(const char* content, const char* finish) {
  return std::string(
             R"(data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"mock","choices":[{"index":0,)") +
         R"("delta":{"content":")" + content + R"("},"finish_reason":)" + finish + "}]}\n\n";
}

asio::awaitable<void> chat(Request request, ResponseWriter& writer) {
  boost::system::error_code error;
  const auto body = boost::json::parse(request.body, error);
  if (error || !body.is_object()) {
    (void)co_await writer.send(penstock::http::json_response(400, R"({"error":{"message":"not JSON"}})"));
    co_return;
  }
  const auto& fields = body.as_object();
  const auto* tokens_field = fields.if_contains("max_tokens");
  const auto* stream_field = fields.if_contains("stream");
  const std::int64_t tokens = tokens_field != nullptr && tokens_field->is_int64() ? tokens_field->as_int64() : 1;
  if (stream_field != nullptr && stream_field->is_bool() && stream_field->as_bool()) {
    writer.begin_stream(200, {{"content-type", "text/event-stream"}});
    for (std::int64_t i = 0; i < tokens; ++i) {
      if (!co_await writer.write(chunk("word ", "null"))) co_return;
    }
    (void)co_await writer.write(chunk("", "\"length\"") + "data: [DONE]\n\n");
    (void)co_await writer.end();
    co_return;
  }
  (void)co_await writer.send(penstock::http::json_response(
      200, R"({"id":"c","object":"chat.completion","created":1,"model":"mock","choices":[{"index":0,"message":)"
           R"({"role":"assistant","content":"word"},"finish_reason":"length"}],)"
           R"("usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}})"));
}

penstock::http::Handler fixed(std::string body) {
  return [body = std::move(body)](Request, ResponseWriter& writer) -> asio::awaitable<void> {
    (void)co_await writer.send(penstock::http::json_response(200, body));
  };
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: bench_mock_worker PORT\n");
    return 2;
  }
  asio::io_context io(1);
  penstock::http::Routes routes;
  routes.add("POST", "/v1/chat/completions", chat);
  routes.add("GET", "/v1/models", fixed(model_json));
  for (const char* path : {"/get_model_info", "/model_info"}) {
    routes.add("GET", path, fixed(R"({"model_path":"mock","tokenizer_path":"","is_generation":true})"));
  }
  for (const char* path : {"/health", "/health_generate", "/get_server_info", "/server_info"}) {
    routes.add("GET", path, fixed("{}"));
  }
  penstock::http::ServerOptions options;
  options.limits.body_bytes_max = 64 << 20;
  penstock::http::Server server(io.get_executor(), options, routes.handler(), penstock::log::Logger());
  const auto port = server.listen("127.0.0.1", static_cast<std::uint16_t>(std::atoi(argv[1])));
  if (!port) {
    std::fprintf(stderr, "bench_mock_worker: %s\n", port.error().message.c_str());
    return 1;
  }
  io.run();
  return 0;
}
