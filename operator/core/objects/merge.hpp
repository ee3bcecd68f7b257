// A user's preserved pod template over what the operator generates. The user's value wins, lists that Kubernetes treats
// as maps are merged by their key, arguments are appended (the last one counts). Pure; any thread.
#pragma once

#include "common/json/json.hpp"

namespace penstock::ctl {

/// Recursion is bounded by the depth of the parsed template (64).
void merge_into(json::Object& generated, const json::Object& user);

}  // namespace penstock::ctl
