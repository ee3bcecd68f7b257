#include <set>

#include "worker/core/plan/linears.hpp"
#include "worker/core/plan/plan.hpp"

namespace penstock::worker::plan {

std::vector<RankLayout> layouts_of(const ModelShape& shape, std::uint32_t devices) {
  std::vector<RankLayout> layouts;
  const auto add = [&](const AxisSizes& sizes) {
    const auto layout = RankLayout::make(sizes);
    if (layout && validate_layout(shape, *layout)) layouts.push_back(*layout);
  };
  AxisSizes s;
  for (s.tensor = 1; s.tensor <= devices; ++s.tensor) {
    if (devices % s.tensor != 0) continue;
    for (s.context = 1; s.tensor * s.context <= devices; ++s.context) {
      if (devices % (s.tensor * s.context) != 0) continue;
      for (s.data = 1; s.tensor * s.context * s.data <= devices; ++s.data) {
        if (devices % (s.tensor * s.context * s.data) != 0) continue;
        const std::uint32_t replica = s.tensor * s.context;
        s.pipeline = devices / (replica * s.data);
        const std::set<std::uint32_t> spreads{1, replica, replica * s.data};
        for (const std::uint32_t spread : spreads) {
          s.expert = spread;
          add(s);
        }
      }
    }
  }
  return layouts;
}

}  // namespace penstock::worker::plan
