// From what the user wrote to what each role is: derived values, the data a revision pins, its hash, the pairing key.
// Derived values are never written back to the spec. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/json/json.hpp"
#include "common/kube/model/status.hpp"
#include "operator/api/llm_service.hpp"

namespace penstock::ctl {

/// One worker role, or the router.
struct ResolvedRole {
  api::RoleSpec spec;    // as written
  std::string hash;      // "h1:..." of `data`
  std::string revision;  // ten characters of it
  std::string pairing;   // prefill and decode of equal value understand each other; "" for other types
  json::Object data;     // {"spec": a service with only this role and what its pods depend on, "pairing"}
};

struct ResolvedService {
  std::vector<ResolvedRole> workers;
  ResolvedRole router;
  std::string revision;  // of all of them
};

ResolvedService resolve(const api::LLMService& service);

/// What a group is built from: a revision's data, read back.
struct PinnedRole {
  api::LLMService service;  // only the parts that pods depend on
  api::RoleSpec role;
  std::string pairing;
  std::string image;
};
Result<PinnedRole> read_pinned(const json::Object& data, const kube::ObjectMeta& service);

api::RestartPolicy restart_policy(const api::RoleSpec& role);
std::int32_t gpus_a_pod(const api::RoleSpec& role);
std::string_view role_type_label(api::RoleType type);  // "prefill"
/// Prefill, decode and encode exchange KV or embeddings and must understand each other.
bool is_paired(api::RoleType type);

}  // namespace penstock::ctl
