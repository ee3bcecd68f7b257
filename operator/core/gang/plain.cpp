// Plain scheduling: the leader goes first; the others wait behind our gate and are let go, into the leader's domain,
// once it is bound. Affinity between pods would do the same and cost the scheduler a multiple. It can't keep two gangs
// from each holding half of what both need; status.schedulingBackend says "None" so that one can see why.
#include "operator/core/gang/gang.hpp"
#include "operator/core/names.hpp"

namespace penstock::ctl::detail {

void join_plain(const GangRequest& request, std::uint32_t rank, json::Object& pod) {
  if (request.size < 2 || rank == 0) return;
  auto& spec = pod["spec"].as_object();
  // A gated pod's selector may only be added to: it must be there.
  if (!spec["nodeSelector"].is_object()) spec["nodeSelector"] = json::Object{{"kubernetes.io/os", "linux"}};
  auto& gates = spec["schedulingGates"];
  if (!gates.is_array()) gates = json::Array{};
  gates.get_array().push_back(json::Object{{"name", scheduling_gate}});
}

}  // namespace penstock::ctl::detail
