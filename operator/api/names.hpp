// How the enumerators of the custom resources are written in objects. Pure; any thread.
#pragma once

#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include "operator/api/llm_service.hpp"
#include "operator/api/model_cache.hpp"
#include "operator/api/role.hpp"

namespace penstock::ctl::api {

template <class E>
using Names = std::span<const std::pair<std::string_view, E>>;

Names<RoleType> api_names(RoleType);
Names<StartupOrder> api_names(StartupOrder);
Names<RestartPolicy> api_names(RestartPolicy);
Names<InPlaceRestart> api_names(InPlaceRestart);
Names<ClaimScope> api_names(ClaimScope);
Names<WhenUnsatisfiable> api_names(WhenUnsatisfiable);
Names<ScalingMode> api_names(ScalingMode);
Names<Enforcement> api_names(Enforcement);
Names<ComputeDomainMode> api_names(ComputeDomainMode);
Names<SchedulingBackend> api_names(SchedulingBackend);
Names<RolloutStrategy> api_names(RolloutStrategy);
Names<RoutingPolicy> api_names(RoutingPolicy);
Names<ToolFormat> api_names(ToolFormat);
Names<ReasoningFormat> api_names(ReasoningFormat);
Names<RouterServiceType> api_names(RouterServiceType);
Names<KvTransfer> api_names(KvTransfer);
Names<CacheState> api_names(CacheState);

template <class E>
concept NamedEnum = std::is_enum_v<E> && requires(E value) { api_names(value); };

/// "Prefill" of RoleType::prefill.
template <NamedEnum E>
std::string_view to_string(E value) {
  for (const auto& [name, candidate] : api_names(E{})) {
    if (candidate == value) return name;
  }
  return "?";
}

}  // namespace penstock::ctl::api
