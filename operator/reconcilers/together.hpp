// Co-location that is required: groups of some roles share an instance of a domain. No scheduler has that for several
// gangs, so later groups are pinned to where the first one is bound, if there is room by what can be seen: devices of
// the nodes less those of our own pods. For the .cpp files of operator/reconcilers. Pure. O(nodes + pods).
#pragma once

#include <string>
#include <vector>

#include "operator/core/placement.hpp"
#include "operator/core/resolve.hpp"
#include "operator/reconcilers/stores.hpp"

namespace penstock::ctl {

struct Together {
  std::string node_label, value;  // where it is pinned to; empty: nowhere yet
  std::string no_room;            // why it can't be made there now; empty if it can
};

/// `pods` are those of the group.
Together find_together(const PinnedRole& pinned, const api::WorkerGroup& group, const std::vector<const Pod*>& pods,
                       const Topology& topology, const Stores& stores);

/// The value that the leader's node has for a label; "" if it isn't bound.
std::string domain_of(const std::vector<const Pod*>& pods, const Stores& stores, std::string_view node_label);

}  // namespace penstock::ctl
