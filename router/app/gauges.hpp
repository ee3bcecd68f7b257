// Metrics that are read from the fleets when somebody asks, and the page of workers. Thread: the I/O thread.
#pragma once

#include <string>

#include "common/metrics/metrics.hpp"
#include "common/time/clock.hpp"
#include "router/backend/served_model.hpp"

namespace penstock::router {

/// `registry` of models must outlive that of metrics.
void add_fleet_gauges(metrics::Registry& metrics, ModelRegistry& registry, const Clock& clock);
std::string workers_json(const ModelRegistry& registry, TimePoint now);

}  // namespace penstock::router
