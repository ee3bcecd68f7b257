// Metrics of the client. Handles are copied freely; made once by the program's app and passed in. Any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/kube/core/watch_machine.hpp"
#include "common/kube/model/resource_type.hpp"
#include "common/metrics/metrics.hpp"

namespace penstock::kube {

inline constexpr std::array<std::string_view, 9> call_verbs{"get",   "list",  "watch",  "create", "update",
                                                            "apply", "patch", "delete", "raw"};
/// Classes of HTTP codes, so that the number of series is fixed; "none": no answer.
inline constexpr std::array<std::string_view, 12> call_codes{"2xx", "400", "401", "403", "404", "409",
                                                             "410", "422", "429", "4xx", "5xx", "none"};

struct Probe {
  std::array<std::array<metrics::Counter, call_codes.size()>, call_verbs.size()> calls;
  std::array<metrics::Counter, restart_count> watch_restarts;
  metrics::Histogram call_seconds;
  metrics::Counter bad_objects;
  metrics::Counter events_dropped;

  void count_call(std::string_view verb, int code) const;
  void count_restart(Restart reason) const { watch_restarts[static_cast<std::size_t>(reason)].increment(); }
};

/// Series `penstock_kube_*`.
Probe make_probe(metrics::Registry& registry);
/// `penstock_kube_cache_objects` of one resource.
metrics::Gauge make_cache_gauge(metrics::Registry& registry, const ResourceType& type);

}  // namespace penstock::kube
