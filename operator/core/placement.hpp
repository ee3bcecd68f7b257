// Where a gang may go: domains of the ClusterTopology become node labels, a preference becomes a ladder of levels that
// is climbed one epoch at a time, and what can't be honoured becomes a problem with a sentence. Pure; any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "operator/api/cluster_topology.hpp"
#include "operator/api/llm_service.hpp"

namespace penstock::ctl {

/// Why something the user asked for isn't so, for a condition: what happened and what to do.
struct Problem {
  std::string reason;  // CamelCase
  std::string message;
};

struct Topology {
  std::vector<api::TopologyLevel> levels;  // broad to narrow; Host is always the last

  const api::TopologyLevel* find(std::string_view domain) const;
  std::size_t index_of(std::string_view domain) const;  // levels.size() if unknown
  std::string_view label_of(std::string_view domain) const;
};

/// Without a ClusterTopology only Host is known.
Topology topology_of(const api::ClusterTopology* cluster);

/// Unknown domains, a preference that isn't narrower than the requirement, labels that nodes lack (by the status).
std::optional<Problem> check_placement(const api::LLMServiceSpec& spec, const Topology& topology,
                                       const api::ClusterTopology* cluster);

/// The levels that a gang is packed to, tried from the first on: the preferred one, then each broader one up to the
/// required one. "" stands for no constraint. Never empty.
std::vector<std::string> pack_ladder(const api::RoleSpec& role, const Topology& topology);
/// The rung after `current`, if there is one.
std::optional<std::string> next_rung(const std::vector<std::string>& ladder, std::string_view current);

/// Whether the group spans pods that must share an NVLink domain, so that it needs a ComputeDomain.
bool needs_compute_domain(const api::LLMServiceSpec& spec, const api::RoleSpec& role, const Topology& topology);

}  // namespace penstock::ctl
