#include "common/kube/client/probe.hpp"

#include <algorithm>
#include <string>

namespace penstock::kube {
namespace {

std::string_view class_of(int code) {
  if (code == 0) return "none";
  if (code >= 200 && code < 300) return "2xx";
  if (code >= 500) return "5xx";
  for (const std::string_view name : call_codes) {
    if (name == std::to_string(code)) return name;
  }
  return "4xx";
}

template <class Names>
std::size_t index_of(const Names& names, std::string_view wanted) {
  const auto found = std::find(names.begin(), names.end(), wanted);
  return found == names.end() ? names.size() - 1 : static_cast<std::size_t>(found - names.begin());
}

}  // namespace

void Probe::count_call(std::string_view verb, int code) const {
  calls[index_of(call_verbs, verb)][index_of(call_codes, class_of(code))].increment();
}

Probe make_probe(metrics::Registry& registry) {
  Probe probe;
  for (std::size_t verb = 0; verb < call_verbs.size(); ++verb) {
    for (std::size_t code = 0; code < call_codes.size(); ++code) {
      probe.calls[verb][code] =
          registry.counter("penstock_kube_calls_total", "Calls of the Kubernetes API by verb and HTTP code.",
                           {{"verb", std::string(call_verbs[verb])}, {"code", std::string(call_codes[code])}});
    }
  }
  for (std::size_t reason = 0; reason < restart_count; ++reason) {
    probe.watch_restarts[reason] =
        registry.counter("penstock_kube_watch_restarts_total", "Watches and lists made again, by reason.",
                         {{"reason", std::string(to_string(static_cast<Restart>(reason)))}});
  }
  probe.call_seconds =
      registry.histogram("penstock_kube_call_seconds", "Time of a call, with its retries.", metrics::latency_buckets());
  probe.bad_objects = registry.counter("penstock_kube_bad_objects_total",
                                       "Objects of lists and watches that could not be read and were passed over.");
  probe.events_dropped =
      registry.counter("penstock_kube_events_dropped_total", "Events not written because there were too many.");
  return probe;
}

metrics::Gauge make_cache_gauge(metrics::Registry& registry, const ResourceType& type) {
  return registry.gauge("penstock_kube_cache_objects", "Objects held in the cache of a resource.",
                        {{"resource", std::string(type.plural)}});
}

}  // namespace penstock::kube
