// What a new revision would make, as dry runs: the API server's whole opinion of a template, admission included, before
// anything of the revision exists. For the .cpp files of operator/reconcilers. Pure.
#pragma once

#include <vector>

#include "operator/core/objects/pod.hpp"
#include "operator/core/objects/service_children.hpp"

namespace penstock::ctl {

/// A pod of a worker role. `data` is the revision's, with its image; nothing if it can't be read back.
std::vector<kube::Write> try_worker(const api::LLMService& service, const ResolvedRole& role, const json::Object& data,
                                    const Topology& topology, const Capabilities& capabilities);
/// The router's Deployment, which says what is wrong with a template as such, and a pod of it, since only pods meet the
/// admission of pods.
std::vector<kube::Write> try_router(const ServiceInput& input);

}  // namespace penstock::ctl
