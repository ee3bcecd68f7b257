// What the operator is compared with: POSTs objects that are at hand, through the same client, and does nothing else.
//
//   penstock_bare_writes --kubeconfig FILE [--connections N] OBJECTS
//
// A line of OBJECTS is a path, a tab and a body. Prints one JSON line. One thread; at most N calls at a time.
#include <CLI/CLI.hpp>
#include <boost/asio/io_context.hpp>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "bench/operator/cluster.hpp"
#include "common/async/task_group.hpp"

namespace {

using namespace penstock;
namespace asio = boost::asio;

struct Options {
  std::string kubeconfig, objects;
  std::size_t connections = 8;
};

struct Work {
  std::vector<kube::WriteRequest> requests;
  std::size_t next = 0;
  std::size_t failed = 0;
};

bool read_requests(const std::string& file, std::vector<kube::WriteRequest>& requests) {
  std::ifstream in(file);
  std::string line;
  while (std::getline(in, line)) {
    const std::size_t tab = line.find('\t');
    if (tab == std::string::npos) return false;
    requests.push_back({"create", "POST", line.substr(0, tab), "application/json", line.substr(tab + 1)});
  }
  return !requests.empty();
}

asio::awaitable<void> write_all(kube::Client& client, Work& work) {
  while (work.next < work.requests.size()) {
    const kube::WriteRequest& request = work.requests[work.next++];
    const auto answer = co_await client.call(request, client.options().call_timeout);
    if (answer) continue;
    if (work.failed++ == 0) {
      std::fprintf(stderr, "%s: %s\n", request.target.c_str(), kube::to_string(answer.error()).c_str());
    }
  }
}

int run(const Options& options) {
  Work work;
  if (!read_requests(options.objects, work.requests)) {
    std::fprintf(stderr, "%s: no lines of a path, a tab and a body\n", options.objects.c_str());
    return 1;
  }
  const auto config = bench::find_cluster(options.kubeconfig);
  if (!config) {
    std::fprintf(stderr, "%s\n", config.error().message.c_str());
    return 1;
  }
  asio::io_context io(1);
  kube::Client client(io.get_executor(), *config, bench::client_options("penstock-bare-writes", options.connections),
                      {}, {});
  async::TaskGroup tasks(io.get_executor());
  const TimePoint start = SteadyClock().now();
  for (std::size_t i = 0; i < options.connections; ++i) tasks.spawn("writer", write_all(client, work));
  io.run();
  const double seconds = std::chrono::duration<double>(SteadyClock().now() - start).count();
  std::printf("{\"objects\":%zu,\"failed\":%zu,\"seconds\":%.2f}\n", work.requests.size(), work.failed, seconds);
  return work.failed > 0 ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("A bare write loop");
  app.add_option("--kubeconfig", options.kubeconfig)->required();
  app.add_option("--connections", options.connections)->check(CLI::Range(1, 64));
  app.add_option("objects", options.objects)->required();
  CLI11_PARSE(app, argc, argv);
  return run(options);
}
