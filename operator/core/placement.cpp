#include "operator/core/placement.hpp"

#include <algorithm>

namespace penstock::ctl {
namespace {

Problem unknown_domain(const std::string& where, const std::string& domain, const Topology& topology) {
  std::string known;
  for (const auto& level : topology.levels) known += (known.empty() ? "" : ", ") + level.domain;
  return {"UnknownDomain", where + " names the domain '" + domain +
                               "', which the ClusterTopology doesn't have; it has " + known +
                               ". Name one of these, or add a level."};
}

std::string pack_requirement(const api::RoleSpec& role) {
  const auto& placement = role.placement;
  if (placement.pack && !placement.pack->required.empty()) return placement.pack->required;
  return placement.exclusive;  // one group an instance only means something if the group stays inside one
}

std::optional<Problem> check_role(const api::RoleSpec& role, const Topology& topology) {
  const std::string where = "role " + role.name;
  const auto known = [&](const std::string& domain) { return domain.empty() || topology.find(domain) != nullptr; };
  const auto& placement = role.placement;
  if (placement.pack) {
    for (const auto& domain : {placement.pack->required, placement.pack->preferred}) {
      if (!known(domain)) return unknown_domain(where, domain, topology);
    }
  }
  if (placement.spread && !known(placement.spread->domain)) {
    return unknown_domain(where, placement.spread->domain, topology);
  }
  if (!known(placement.exclusive)) return unknown_domain(where, placement.exclusive, topology);
  const std::string required = pack_requirement(role);
  if (!placement.pack || placement.pack->preferred.empty() || required.empty()) return std::nullopt;
  if (topology.index_of(placement.pack->preferred) > topology.index_of(required)) return std::nullopt;
  return Problem{"PreferredNotNarrower", where + " prefers " + placement.pack->preferred +
                                             ", which isn't narrower than " + required +
                                             " that it requires. Prefer a narrower domain."};
}

std::vector<std::string> domains_of(const api::LLMServiceSpec& spec) {
  std::vector<std::string> domains;
  for (const auto& role : spec.roles) {
    const std::string required = pack_requirement(role);
    if (!required.empty()) domains.push_back(required);
  }
  if (spec.placement.co_locate && spec.placement.co_locate->enforcement == api::Enforcement::required) {
    domains.push_back(spec.placement.co_locate->domain);
  }
  return domains;
}

}  // namespace

const api::TopologyLevel* Topology::find(std::string_view domain) const {
  const std::size_t at = index_of(domain);
  return at == levels.size() ? nullptr : &levels[at];
}

std::size_t Topology::index_of(std::string_view domain) const {
  for (std::size_t i = 0; i < levels.size(); ++i) {
    if (levels[i].domain == domain) return i;
  }
  return levels.size();
}

std::string_view Topology::label_of(std::string_view domain) const {
  const auto* level = find(domain);
  return level == nullptr ? std::string_view() : level->node_label;
}

Topology topology_of(const api::ClusterTopology* cluster) {
  Topology topology;
  if (cluster != nullptr) topology.levels = cluster->spec.levels;
  if (topology.find(api::host_domain) == nullptr) {
    api::TopologyLevel host;
    host.domain = api::host_domain;
    host.node_label = api::host_label;
    topology.levels.push_back(std::move(host));
  }
  return topology;
}

std::optional<Problem> check_placement(const api::LLMServiceSpec& spec, const Topology& topology,
                                       const api::ClusterTopology* cluster) {
  for (const auto& role : spec.roles) {
    if (auto problem = check_role(role, topology)) return problem;
  }
  const auto& together = spec.placement.co_locate;
  if (together && topology.find(together->domain) == nullptr) {
    return unknown_domain("placement.coLocate", together->domain, topology);
  }
  if (cluster == nullptr) return std::nullopt;
  for (const auto& domain : domains_of(spec)) {
    for (const auto& level : cluster->status.levels) {
      if (level.domain != domain || level.instances > 0 || level.nodes_missing_label == 0) continue;
      return Problem{"NodesLackLabel", "no node has the label " + std::string(topology.label_of(domain)) +
                                           " of the required domain " + domain + " (" +
                                           std::to_string(level.nodes_missing_label) +
                                           " nodes lack it). Label the nodes or require another domain."};
    }
  }
  return std::nullopt;
}

std::vector<std::string> pack_ladder(const api::RoleSpec& role, const Topology& topology) {
  const std::string required = pack_requirement(role);
  const std::string preferred = role.placement.pack ? role.placement.pack->preferred : "";
  const std::size_t from = topology.index_of(preferred);
  if (preferred.empty() || from == topology.levels.size()) return {required};
  std::vector<std::string> ladder;
  for (std::size_t i = from + 1; i-- > 0;) {
    ladder.push_back(topology.levels[i].domain);
    if (topology.levels[i].domain == required) return ladder;
  }
  ladder.push_back(required);  // no constraint, or one that isn't on the way up
  return ladder;
}

std::optional<std::string> next_rung(const std::vector<std::string>& ladder, std::string_view current) {
  const auto at = std::find(ladder.begin(), ladder.end(), current);
  if (at == ladder.end() || at + 1 == ladder.end()) return std::nullopt;
  return *(at + 1);
}

bool needs_compute_domain(const api::LLMServiceSpec& spec, const api::RoleSpec& role, const Topology& topology) {
  switch (spec.placement.compute_domain) {
    case api::ComputeDomainMode::never:
      return false;
    case api::ComputeDomainMode::always:
      return true;
    case api::ComputeDomainMode::automatic:
      break;
  }
  const auto* level = topology.find(pack_requirement(role));
  return role.group.size > 1 && level != nullptr && level->nvlink;
}

}  // namespace penstock::ctl
