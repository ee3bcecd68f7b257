#include "router/discovery/pod_watch.hpp"

#include "common/kube/client/watch_loop.hpp"
#include "common/kube/model/known_types.hpp"

namespace penstock::router {

struct PodWatch::Parts {
  Parts(boost::asio::any_io_executor executor, kube::ClusterConfig cluster, PodWatchOptions settings,
        metrics::Registry& metrics, log::Logger logger, std::uint64_t seed, Listener on_change)
      : options(std::move(settings)),
        listener(std::move(on_change)),
        client(std::move(executor), std::move(cluster), client_options(seed), kube::make_probe(metrics), logger),
        informer(client, kube::pods, options.namespace_, watch_options(options), pods, parse_worker_pod, seed,
                 kube::make_cache_gauge(metrics, kube::pods)) {
    pods.observe([this](const kube::Change<WorkerPod>&) { tell(); });
  }

  static kube::ClientOptions client_options(std::uint64_t seed) {
    kube::ClientOptions made;
    made.user_agent = "penstock-router";
    made.seed = seed;
    return made;
  }
  static kube::WatchOptions watch_options(const PodWatchOptions& options) {
    kube::WatchOptions made;
    made.label_selector = options.selector;
    return made;
  }

  // Called for each pod; most changes of a pod mean nothing to us.
  void tell() {
    auto targets = worker_targets(pods, options.port);
    if (!pods.synced() || targets == told) return;
    told = std::move(targets);
    listener(told);
  }

  PodWatchOptions options;
  Listener listener;
  std::vector<WorkerTarget> told;
  kube::Store<WorkerPod> pods;
  kube::Client client;
  kube::Informer<WorkerPod> informer;
};

PodWatch::PodWatch(boost::asio::any_io_executor executor, kube::ClusterConfig cluster, PodWatchOptions options,
                   metrics::Registry& metrics, log::Logger logger, std::uint64_t seed, Listener listener)
    : parts_(std::make_unique<Parts>(std::move(executor), std::move(cluster), std::move(options), metrics,
                                     std::move(logger), seed, std::move(listener))) {}

PodWatch::~PodWatch() = default;

boost::asio::awaitable<void> PodWatch::run() { return parts_->informer.run(); }

bool PodWatch::is_synced() const { return parts_->pods.synced(); }

}  // namespace penstock::router
