// Nodes without machines, for scale runs of the operator: registers N nodes, renews their Leases, and does for pods
// bound to them what a kubelet would say: Running and Ready after a delay, gone once they are being deleted.
//
//   penstock_fake_nodes --kubeconfig FILE [--nodes N] [--ready-delay-ms MS] [--silent N --silent-after-s S] ...
//
// Prints "ready" when all nodes are registered; ends at SIGTERM and leaves the nodes behind. One thread; a connection
// for the watch, one for Leases a hundred nodes, and --connections for pods: what is more waits.
#include <CLI/CLI.hpp>
#include <boost/asio/io_context.hpp>
#include <cstdio>
#include <string>

#include "bench/operator/cluster.hpp"
#include "bench/operator/fake_kubelet.hpp"
#include "common/async/deadline.hpp"
#include "common/async/signals.hpp"
#include "common/async/task_group.hpp"
#include "common/kube/client/watch_loop.hpp"
#include "common/kube/model/known_types.hpp"
#include "common/time/wall_clock.hpp"

namespace {

using namespace std::chrono_literals;
using namespace penstock;
using namespace penstock::bench;
namespace asio = boost::asio;

constexpr Duration renew_every = 10s;  // of one node; the controller manager allows 40 s
constexpr Duration retry_after = 1s;
constexpr std::size_t node_connections = 4;

struct Options {
  std::string kubeconfig;
  std::size_t nodes = 100;
  std::size_t connections = 4;
  int ready_delay_ms = 0;
  std::size_t silent = 0;  // the last so many nodes stop doing anything ...
  int silent_after_s = 0;  // ... this long after the start
  NodeShape shape;
};

/// Belongs to the io_context's thread.
class FakeNodes {
 public:
  FakeNodes(asio::io_context& io, const kube::ClusterConfig& config, Options options)
      : options_(std::move(options)),
        node_calls_(io.get_executor(), config, client_options("penstock-fake-nodes", node_connections), {}, {}),
        pod_calls_(io.get_executor(), config, client_options("penstock-fake-nodes", options_.connections), {}, {}),
        node_informer_(node_calls_, kube::nodes, "", {}, nodes_, project_node, 1),
        pod_informer_(pod_calls_, kube::pods, "", bound_pods(), pods_, project_pod, 2),
        tasks_(io.get_executor(), [](std::string_view task, std::string_view what) {
          std::fprintf(stderr, "%.*s: %.*s\n", static_cast<int>(task.size()), task.data(),
                       static_cast<int>(what.size()), what.data());
        }) {
    nodes_.observe([this](const kube::Change<NodeState>& change) { on_change(change); });
    pods_.observe([this](const kube::Change<FakePod>& change) { on_change(change); });
  }

  void start() {
    started_ = clock_.now();
    tasks_.spawn("nodes", node_informer_.run());
    tasks_.spawn("pods", pod_informer_.run());
    for (std::size_t index = 0; index < options_.nodes; ++index) tasks_.spawn("node", keep_node(index));
  }
  asio::awaitable<void> stop(asio::io_context& io) {
    co_await tasks_.drain(Duration(0));
    io.stop();
  }

 private:
  static kube::WatchOptions bound_pods() {
    kube::WatchOptions options;
    options.field_selector = "spec.nodeName!=";
    return options;
  }

  bool is_silent(std::size_t index) const {
    return index + options_.silent >= options_.nodes &&
           clock_.now() - started_ >= std::chrono::seconds(options_.silent_after_s);
  }

  /// Registers the node, then renews its Lease; the renewals of all nodes are spread evenly over the interval.
  asio::awaitable<void> keep_node(std::size_t index) {
    co_await create(kube::nodes, "", node_object(index, options_.shape, now()));
    co_await create(kube::leases, std::string(node_lease_namespace), lease_object(index, now()));
    if (++registered_ == options_.nodes) {
      std::puts("ready");
      std::fflush(stdout);
    }
    co_await async::pause(renew_every * static_cast<int>(index) / static_cast<int>(options_.nodes));
    while (!is_silent(index)) {
      kube::Patch patch;
      patch.type = kube::leases;
      patch.key = {std::string(node_lease_namespace), node_name(index)};
      patch.body = renewal(now());
      const auto answer = co_await node_calls_.execute(patch);
      if (!answer) complain("renewal", answer.error());
      co_await async::pause(renew_every);
    }
  }

  void on_change(const kube::Change<NodeState>& change) {
    if (change.after == nullptr || change.after->ready) return;
    const std::optional<std::size_t> index = node_index(change.after->meta.name);
    if (index && *index < options_.nodes && !is_silent(*index)) tasks_.spawn("node", reassure(*index));
  }

  /// The controller manager has given the node up, since renewals came late: a kubelet would say that it is well.
  asio::awaitable<void> reassure(std::size_t index) {
    kube::Patch patch;
    patch.type = kube::nodes;
    patch.key = {"", node_name(index)};
    patch.subresource = "status";
    patch.body = ready_again(now());
    const auto answer = co_await node_calls_.execute(patch);
    if (!answer) complain("node", answer.error());
  }

  /// Until it is there: the run is worth nothing without it.
  asio::awaitable<void> create(kube::ResourceType type, std::string space, json::Object body) {
    kube::Create write;
    write.type = type;
    write.namespace_ = std::move(space);
    write.body = std::move(body);
    while (true) {
      const auto answer = co_await node_calls_.execute(write);
      if (answer || answer.error().is(kube::Failure::already_exists)) co_return;
      complain("registration", answer.error());
      co_await async::pause(retry_after);
    }
  }

  void on_change(const kube::Change<FakePod>& change) {
    const FakePod* pod = change.after;
    if (pod == nullptr) return;
    const bool is_new = change.before == nullptr,
               ends = pod->meta.deleted && !(change.before && change.before->meta.deleted);
    const std::optional<std::size_t> index = node_index(pod->node);
    if ((is_new || ends) && index && *index < options_.nodes) {
      tasks_.spawn("pod", serve(pod->meta.key(), pod->meta.uid, *index, ends ? Duration(0) : ready_delay()));
    }
  }

  /// Writes what the pod needs now, until it is written or needless.
  asio::awaitable<void> serve(kube::Key key, std::string uid, std::size_t node, Duration delay) {
    if (delay > Duration(0)) co_await async::pause(delay);
    while (true) {
      const FakePod* pod = pods_.find(key);
      if (pod == nullptr || pod->meta.uid != uid || is_silent(node)) co_return;
      const bool ends = pod->meta.deleted.has_value();
      if (!ends && pod->phase != "Pending") co_return;
      kube::Write write = ends ? removal(*pod) : start_of(*pod, node);
      const auto answer = co_await pod_calls_.execute(write);
      if (answer || answer.error().is(kube::Failure::not_found) || answer.error().is(kube::Failure::conflict))
        co_return;
      complain("pod", answer.error());
      co_await async::pause(retry_after);
    }
  }

  static kube::Write removal(const FakePod& pod) {
    kube::Delete write;
    write.type = kube::pods;
    write.key = pod.meta.key();
    write.preconditions.uid = pod.meta.uid;
    write.grace_period_s = 0;
    return write;
  }
  kube::Write start_of(const FakePod& pod, std::size_t node) {
    kube::Patch write;
    write.type = kube::pods;
    write.key = pod.meta.key();
    write.subresource = "status";
    write.body = running_status(pod, node_address(node), pod_address(pods_started_++), now());
    write.preconditions.uid = pod.meta.uid;
    return write;
  }

  static kube::Timestamp now() {
    const WallTime time = wall_now();
    return {time.unix_s * 1'000'000 + time.milliseconds * 1'000};
  }
  Duration ready_delay() const { return std::chrono::milliseconds(options_.ready_delay_ms); }
  static void complain(const char* what, const kube::ApiStatus& status) {
    std::fprintf(stderr, "%s: %s\n", what, kube::to_string(status).c_str());
  }

  Options options_;
  SteadyClock clock_;
  kube::Client node_calls_, pod_calls_;
  kube::Store<NodeState> nodes_;
  kube::Store<FakePod> pods_;
  kube::Informer<NodeState> node_informer_;
  kube::Informer<FakePod> pod_informer_;
  TimePoint started_{};
  std::size_t registered_ = 0;
  std::uint64_t pods_started_ = 0;
  async::TaskGroup tasks_;
};

int run(const Options& options) {
  const auto config = find_cluster(options.kubeconfig);
  if (!config) {
    std::fprintf(stderr, "%s\n", config.error().message.c_str());
    return 1;
  }
  asio::io_context io(1);
  FakeNodes nodes(io, *config, options);
  async::TaskGroup ending(io.get_executor());
  async::StopSignals signals(io.get_executor(), [&] { ending.spawn("stop", nodes.stop(io)); });
  nodes.start();
  io.run();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Nodes without machines");
  app.add_option("--kubeconfig", options.kubeconfig)->required();
  app.add_option("--nodes", options.nodes)->check(CLI::Range(std::size_t{1}, nodes_max));
  app.add_option("--connections", options.connections, "for pods")->check(CLI::Range(1, 64));
  app.add_option("--ready-delay-ms", options.ready_delay_ms)->check(CLI::Range(0, 600'000));
  app.add_option("--silent", options.silent, "the last so many nodes fall silent");
  app.add_option("--silent-after-s", options.silent_after_s)->check(CLI::Range(0, 86'400));
  app.add_option("--cpus", options.shape.cpus, "of a node");
  app.add_option("--memory-gib", options.shape.memory_gib);
  app.add_option("--gpus", options.shape.gpus);
  app.add_option("--pods-max", options.shape.pods_max);
  app.add_option("--nodes-per-rack", options.shape.nodes_per_rack)->check(CLI::Range(1, 10'000));
  app.add_option("--nodes-per-block", options.shape.nodes_per_block)->check(CLI::Range(1, 10'000));
  CLI11_PARSE(app, argc, argv);
  return run(options);
}
