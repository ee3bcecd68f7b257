// Internal to this folder: everything a decision looks at.
#pragma once

#include "router/core/policy/policy.hpp"

namespace penstock::router {

struct Policy::Scene {
  const PlacementRequest& request;
  std::span<const WorkerEntry> workers;
  std::span<const LoadView::Figures> loads;
  std::span<const std::uint32_t> matched;
  TimePoint now;
};

}  // namespace penstock::router
