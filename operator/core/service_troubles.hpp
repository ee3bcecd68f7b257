// What is counted of services: bad conditions that somebody has to do something about. Pure; any thread.
#pragma once

#include <array>
#include <string_view>

#include "operator/api/llm_service.hpp"

namespace penstock::ctl {

/// Conditions of a service that somebody has to do something about when they are bad; trouble of its groups is counted
/// by group (group.hpp).
inline constexpr std::array<std::string_view, 6> service_troubles{"TopologyValid", "ModelCached", "TemplateValid",
                                                                  "ScalingActive", "Progressing", "Degraded"};
/// Whether the condition, one of service_troubles, is bad.
bool is_troubled(const api::LLMServiceStatus& status, std::string_view type);

}  // namespace penstock::ctl
