// Gang scheduling: all pods of a group start together or none does. Each back end is an object that names the gang and
// a mark on its pods. The native PodGroup is used where the API server has it; KAI and Volcano by their API objects;
// otherwise plain scheduling: the leader first, the others behind our gate until it is bound. Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/json/json.hpp"
#include "common/kube/model/resource_type.hpp"
#include "operator/api/llm_service.hpp"
#include "operator/core/context.hpp"
#include "operator/core/placement.hpp"

namespace penstock::ctl {

enum class Gang : std::uint8_t { kubernetes, kai, volcano, none };
std::string_view to_string(Gang gang);  // as in status.schedulingBackend

struct GangChoice {
  Gang gang = Gang::none;
  std::optional<Problem> problem;  // a back end was asked for by name that the cluster doesn't have
};
GangChoice choose_gang(api::SchedulingBackend wanted, const Capabilities& capabilities);

/// What one epoch of one group asks of the scheduler.
struct GangRequest {
  std::string name;  // of the gang: "<group>-<epoch36>", since its constraints can't be changed later
  std::uint32_t size = 1;
  const api::LLMServiceSpec* service = nullptr;
  const api::RoleSpec* role = nullptr;
  const Topology* topology = nullptr;
  std::string pack;  // the level of this epoch; "" is none
};

struct GangObject {
  kube::ResourceType type;
  json::Object spec;
};
/// Nothing for a gang of one and for plain scheduling.
std::optional<GangObject> gang_object(Gang gang, const GangRequest& request);
/// Marks one pod as a member. `pod` has metadata and spec already.
void join_gang(Gang gang, const GangRequest& request, std::uint32_t rank, json::Object& pod);
/// Whether the back end tries the preferred level by itself; else the group climbs the ladder.
bool prefers_by_itself(Gang gang);

namespace detail {
std::optional<GangObject> kubernetes_gang(const GangRequest& request);
std::optional<GangObject> kai_gang(const GangRequest& request);
std::optional<GangObject> volcano_gang(const GangRequest& request);
void join_kubernetes(const GangRequest& request, json::Object& pod);
void join_kai(const GangRequest& request, json::Object& pod);
void join_volcano(const GangRequest& request, json::Object& pod);
void join_plain(const GangRequest& request, std::uint32_t rank, json::Object& pod);
}  // namespace detail

}  // namespace penstock::ctl
