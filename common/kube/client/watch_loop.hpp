// Keeps one cache equal to the API server, for as long as it runs. Informer<T> is a Store<T> kept so.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <string>
#include <utility>

#include "common/kube/client/client.hpp"
#include "common/kube/core/reflector.hpp"
#include "common/metrics/metrics.hpp"

namespace penstock::kube {

/// Makes the reflector's requests at `path`. Never returns; ends by cancellation. The arguments must outlive it.
asio::awaitable<void> run_reflector(Client& client, std::string path, Reflector& reflector);

template <class T>
class Informer {
 public:
  /// An empty namespace is all of them. `objects` is the gauge of the cache's size; it may be empty.
  Informer(Client& client, const ResourceType& type, std::string_view namespace_, WatchOptions options, Store<T>& store,
           Projection<T> projection, std::uint64_t seed, metrics::Gauge objects = {})
      : client_(client),
        path_(type.path(namespace_)),
        sink_(store, std::move(projection)),
        reflector_(std::move(options), sink_, seed, observer(client)) {
    store.observe([&store, objects](const Change<T>&) { objects.set(static_cast<double>(store.size())); });
  }

  /// Spawn once into a TaskGroup; ends by cancellation.
  asio::awaitable<void> run() { return run_reflector(client_, path_, reflector_); }
  const Reflector& reflector() const { return reflector_; }

 private:
  static ReflectorObserver observer(Client& client) {
    ReflectorObserver made;
    made.on_restart = [&client](Restart reason) { client.probe().count_restart(reason); };
    made.on_bad_object = [&client](const Error&) { client.probe().bad_objects.increment(); };
    return made;
  }

  Client& client_;
  std::string path_;
  StoreSink<T> sink_;
  Reflector reflector_;
};

}  // namespace penstock::kube
