// Load on a router: N connections in a closed loop, or a fixed arrival rate in an open one. Prints one JSON line with
// latencies and the CPU time that the router process used, read from /proc before and after.
//
//   bench_load --port P... --pid ROUTER_PID --shape SHAPE --requests N --connections C [--rate R] [--unseen]
//
// Shapes: short 64 B prompt and 1 token; stream 8 KB prompt and 64 tokens over SSE; long 400 KB prompt and 1 token;
// groups 32 KB prompt, of which 29 KB are common to one of 64 groups, and 1 token.
// Prompts repeat over 16 conversations ("warm": the prefix was seen before); --unseen makes every prompt new.
// hit_share is the cached part of all prompt tokens, as the answers' usage has it; streams do not tell it.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "common/async/deadline.hpp"
#include "common/async/task_group.hpp"
#include "common/http/client.hpp"
#include "common/time/random.hpp"

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
namespace asio = boost::asio;
using penstock::Random;

struct Shape {
  std::size_t prompt_bytes = 64;
  int tokens = 1;
  bool stream = false;
  std::uint64_t groups = 0;      // 0: by conversation
  std::size_t prefix_bytes = 0;  // of a group
};

struct Options {
  std::vector<std::uint16_t> ports;
  int pid = 0;
  std::string shape = "short", model;
  std::size_t requests = 1000, connections = 1;
  double rate = 0;
  bool unseen = false;
};

/// Text of about `bytes` bytes, made of words, the same for the same seed.
std::string text(std::size_t bytes, std::uint64_t seed) {
  static const char* const words[] = {"river", "stone", "under", "light",  "seven",  "window", "paper",  "north",
                                      "green", "table", "music", "yellow", "garden", "summer", "engine", "letter"};
  Random random(seed);
  std::string out;
  while (out.size() < bytes) out += std::string(words[random.below(16)]) + " ";
  out.resize(bytes);
  return out;
}

std::string body(const Options& options, const Shape& shape, std::size_t index) {
  const std::uint64_t conversation = options.unseen ? 1'000'000 + index : index % 16;
  std::string content;
  if (shape.groups > 0) {
    content = text(shape.prefix_bytes, Random(index).below(shape.groups)) +
              text(shape.prompt_bytes - shape.prefix_bytes, 1'000'000 + index);
  } else {
    content = text(shape.prompt_bytes, conversation);
    if (shape.prompt_bytes > 64) content += " turn " + std::to_string(index);
  }
  return R"({"model":")" + options.model + R"(","max_tokens":)" + std::to_string(shape.tokens) +
         R"(,"ignore_eos":true,"temperature":0,"stream":)" + (shape.stream ? "true" : "false") +
         R"(,"messages":[{"role":"user","content":")" + content + R"("}]})";
}

double cpu_seconds(int pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/schedstat");
  double nanoseconds = 0;
  // The sum over threads: schedstat of the process is its main thread only.
  const std::string tasks = "/proc/" + std::to_string(pid) + "/task";
  FILE* list = popen(("cat " + tasks + "/*/schedstat 2>/dev/null").c_str(), "r");
  if (list == nullptr) return 0;
  double run = 0, wait = 0;
  long slices = 0;
  while (std::fscanf(list, "%lf %lf %ld", &run, &wait, &slices) == 3) nanoseconds += run;
  pclose(list);
  return nanoseconds * 1e-9;
}

long rss_kib(int pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("VmRSS:")) return std::stol(line.substr(6));
  }
  return 0;
}

struct Results {
  std::vector<double> first_token_ms, total_ms;
  std::size_t failed = 0;
  std::string first_failure;
  double prompt_tokens = 0, cached_tokens = 0;
};

/// The number after `"key":` in an answer, 0 if there is none.
double number_after(const std::string& answer, const std::string& key) {
  const std::size_t at = answer.find("\"" + key + "\":");
  return at == std::string::npos ? 0 : std::strtod(answer.c_str() + at + key.size() + 3, nullptr);
}

class Load {
 public:
  Load(asio::io_context& io, const Options& options, Shape shape) : io_(io), options_(options), shape_(shape) {}

  asio::awaitable<void> connection(std::uint16_t port) {
    penstock::http::Client client({.port = port});
    while (next_ < options_.requests) {
      const std::size_t index = next_++;
      Clock::time_point due = Clock::now();
      if (options_.rate > 0) {
        due = start_ + std::chrono::duration_cast<Clock::duration>(
                           std::chrono::duration<double>(static_cast<double>(index) / options_.rate));
        if (due > Clock::now()) co_await penstock::async::pause(due - Clock::now());
      }
      co_await one(client, index, due);
    }
  }

  Results results;
  Clock::time_point start_ = Clock::now();

 private:
  asio::awaitable<void> one(penstock::http::Client& client, std::size_t index, Clock::time_point due) {
    penstock::http::ClientRequest request;
    request.method = "POST";
    request.target = "/v1/chat/completions";
    request.headers.add("content-type", "application/json");
    request.body = body(options_, shape_, index);
    if (options_.rate == 0) due = Clock::now();
    auto answer = co_await client.start(std::move(request), 60s);
    if (!answer) {
      client.close();
      co_return fail(answer.error().message);
    }
    std::string received;
    double first = 0;
    for (;;) {
      auto part = co_await client.read(60s);
      if (!part) {
        client.close();
        co_return fail(part.error().message);
      }
      if (part->empty()) break;
      if (first == 0) first = since(due);
      received += *part;
    }
    if (answer->status != 200) co_return fail("status " + std::to_string(answer->status) + ": " + received);
    if (shape_.stream && received.find("[DONE]") == std::string::npos) co_return fail("a stream without [DONE]");
    results.first_token_ms.push_back(first);
    results.total_ms.push_back(since(due));
    results.prompt_tokens += number_after(received, "prompt_tokens");
    results.cached_tokens += number_after(received, "cached_tokens");
  }

  static double since(Clock::time_point start) {
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  }
  void fail(std::string why) {
    if (results.failed++ == 0) results.first_failure = std::move(why);
  }

  asio::io_context& io_;
  Options options_;
  Shape shape_;
  std::size_t next_ = 0;
};

double percentile(std::vector<double>& values, double share) {
  if (values.empty()) return 0;
  const auto at = static_cast<std::size_t>(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(at), values.end());
  return values[at];
}

int run(const Options& options, Shape shape) {
  asio::io_context io(1);
  Load load(io, options, shape);
  penstock::async::TaskGroup tasks(io.get_executor());
  const double cpu_before = options.pid > 0 ? cpu_seconds(options.pid) : 0;
  load.start_ = Clock::now();
  for (std::size_t i = 0; i < options.connections; ++i) {
    tasks.spawn("connection", load.connection(options.ports[i % options.ports.size()]));
  }
  io.run();
  const double seconds = std::chrono::duration<double>(Clock::now() - load.start_).count();
  const double cpu = options.pid > 0 ? cpu_seconds(options.pid) - cpu_before : 0;
  auto& results = load.results;
  const auto done = static_cast<double>(results.total_ms.size());
  std::printf(
      R"({"shape":"%s","connections":%zu,"rate":%g,"unseen":%s,"requests":%zu,"failed":%zu,"per_second":%.1f,)"
      R"("cpu_us_per_request":%.1f,"first_ms_p50":%.3f,"first_ms_p99":%.3f,"total_ms_p50":%.3f,"total_ms_p99":%.3f,)"
      R"("hit_share":%.3f,"rss_mib":%.1f})"
      "\n",
      options.shape.c_str(), options.connections, options.rate, options.unseen ? "true" : "false", options.requests,
      results.failed, done / seconds, done > 0 ? cpu * 1e6 / done : 0, percentile(results.first_token_ms, 0.5),
      percentile(results.first_token_ms, 0.99), percentile(results.total_ms, 0.5), percentile(results.total_ms, 0.99),
      results.prompt_tokens > 0 ? results.cached_tokens / results.prompt_tokens : 0,
      options.pid > 0 ? static_cast<double>(rss_kib(options.pid)) / 1024 : 0);
  if (results.failed > 0) std::fprintf(stderr, "first failure: %s\n", results.first_failure.c_str());
  return results.failed > 0 ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Load on a router");
  app.add_option("--port", options.ports, "of several, connections take turns")->required();
  app.add_option("--pid", options.pid, "process whose CPU time is counted");
  app.add_option("--model", options.model)->required();
  app.add_option("--shape", options.shape)->check(CLI::IsMember({"short", "stream", "long", "groups"}));
  app.add_option("--requests", options.requests)->check(CLI::Range(1, 1'000'000));
  app.add_option("--connections", options.connections)->check(CLI::Range(1, 1024));
  app.add_option("--rate", options.rate, "arrivals a second; 0 is a closed loop");
  app.add_flag("--unseen", options.unseen);
  CLI11_PARSE(app, argc, argv);
  Shape shape;
  if (options.shape == "stream") shape = {8 << 10, 64, true};
  if (options.shape == "long") shape = {400 << 10, 1, false};
  if (options.shape == "groups") shape = {32 << 10, 1, false, 64, 29 << 10};
  return run(options, shape);
}
