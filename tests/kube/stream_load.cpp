// Streams completions without a pause until SIGTERM or SIGINT, and judges every one: it must end with [DONE], hold the
// number of tokens asked for, and say what the same prompt said before (greedy decoding gives one text whatever happens
// underneath). Prints one JSON line at the end; exit code 1 if any request failed.
//
//   kube_stream_load --host H --port P --model M [--clients N] [--tokens N] [--seconds MAX]
#include <CLI/CLI.hpp>
#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/json.hpp>
#include <chrono>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "common/async/signals.hpp"
#include "common/async/task_group.hpp"
#include "common/http/client.hpp"
#include "common/json/json.hpp"

namespace {

namespace asio = boost::asio;
namespace http = penstock::http;
namespace json = boost::json;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

struct Options {
  std::string host = "127.0.0.1", model;
  std::uint16_t port = 8000;
  int clients = 4, tokens = 48, seconds = 600;
};

struct Score {
  std::size_t requests = 0, tokens = 0;
  std::map<std::string, std::size_t> failures;  // by reason
  std::map<std::string, std::string> texts;     // by prompt
  Clock::duration longest_gap{};                // between two events of a stream
};

const char* const prompts[] = {"The capital of France is", "Once upon a time there was",
                               "Water boils at",           "The first thing that I do in the morning is",
                               "Three colours are",        "Dear Sir or Madam,"};

class Load {
 public:
  Load(const Options& options, Score& score) : options_(options), score_(score) {}
  void stop() { stopping_ = true; }

  asio::awaitable<void> client(std::size_t number) {
    const auto deadline = Clock::now() + std::chrono::seconds(options_.seconds);
    for (std::size_t turn = number; !stopping_ && Clock::now() < deadline; ++turn) {
      const std::string prompt = prompts[turn % std::size(prompts)];
      std::string reason = co_await stream(prompt);
      ++score_.requests;
      if (!reason.empty()) ++score_.failures[reason];
    }
  }

 private:
  /// Why it failed; empty if all is well.
  asio::awaitable<std::string> stream(std::string prompt) {
    http::ClientOptions where;
    where.host = options_.host;
    where.port = options_.port;
    http::Client connection(where);
    const json::object body{{"model", options_.model},
                            {"prompt", prompt},
                            {"max_tokens", options_.tokens},
                            {"temperature", 0},
                            {"ignore_eos", true},
                            {"stream", true},
                            {"stream_options", json::object{{"include_usage", true}}}};
    http::ClientRequest request("POST", "/v1/completions", {{"content-type", "application/json"}},
                                json::serialize(body));
    auto answer = co_await connection.start(std::move(request), 60s);
    if (!answer) co_return "no answer: " + answer.error().message;
    if (answer->status != 200) co_return "status " + std::to_string(answer->status);
    std::string text;
    std::int64_t counted = 0;
    bool is_done = false;
    for (auto last = Clock::now();;) {
      auto event = co_await connection.next_event(60s);
      if (!event) co_return "stream broke: " + event.error().message;
      score_.longest_gap = std::max(score_.longest_gap, Clock::now() - last);
      last = Clock::now();
      if (!*event) break;
      if ((*event)->data == "[DONE]") {
        is_done = true;
        continue;
      }
      boost::system::error_code bad;
      const json::value chunk = json::parse((*event)->data, bad);
      if (bad || !chunk.is_object()) co_return "a chunk is no JSON";
      if (chunk.as_object().contains("error")) co_return "error in the stream";
      for (const auto& choice : chunk.at("choices").as_array()) text += choice.at("text").as_string();
      const auto* usage = chunk.as_object().if_contains("usage");
      if (usage != nullptr && usage->is_object()) counted = usage->at("completion_tokens").to_number<std::int64_t>();
    }
    if (!is_done) co_return "no [DONE]";
    if (counted != options_.tokens) co_return "wrong number of tokens";
    score_.tokens += static_cast<std::size_t>(counted);
    const auto known = score_.texts.emplace(prompt, text);
    if (known.first->second != text) co_return "another text than before";
    co_return std::string();
  }

  const Options& options_;
  Score& score_;
  bool stopping_ = false;
};

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Streams completions until told to stop, and judges every one");
  app.add_option("--host", options.host);
  app.add_option("--port", options.port);
  app.add_option("--model", options.model)->required();
  app.add_option("--clients", options.clients);
  app.add_option("--tokens", options.tokens);
  app.add_option("--seconds", options.seconds);
  CLI11_PARSE(app, argc, argv);

  asio::io_context io(1);
  Score score;
  Load load(options, score);
  {
    const penstock::async::StopSignals signals(io.get_executor(), [&] { load.stop(); });
    penstock::async::TaskGroup tasks(io.get_executor(), [&](std::string_view, std::string_view what) {
      ++score.failures["exception: " + std::string(what)];
    });
    for (int i = 0; i < options.clients; ++i) tasks.spawn("client", load.client(static_cast<std::size_t>(i)));
    while (tasks.count() > 0 && io.run_one() > 0) {
    }
  }
  std::size_t failed = 0;
  json::object reasons;
  for (const auto& [reason, count] : score.failures) {
    failed += count;
    reasons[reason] = count;
  }
  const double gap = std::chrono::duration<double>(score.longest_gap).count();
  std::puts(json::serialize(json::object{{"requests", score.requests},
                                         {"tokens", score.tokens},
                                         {"failed", failed},
                                         {"reasons", reasons},
                                         {"longest_gap_s", gap}})
                .c_str());
  return failed == 0 && score.requests > 0 ? 0 : 1;
}
