// Small writes that several reconciles make. For the .cpp files of operator/reconcilers. Pure.
#pragma once

#include <optional>
#include <string_view>

#include "common/json/json.hpp"
#include "operator/core/group.hpp"
#include "operator/core/objects/common.hpp"
#include "operator/core/objects/types.hpp"
#include "operator/core/placement.hpp"
#include "operator/reconcilers/reconcile.hpp"

namespace penstock::ctl {

/// Status by server-side apply; nothing if `after` equals `before`.
void write_status(Outcome& out, const kube::ResourceType& type, const kube::ObjectMeta& meta,
                  const json::Object& before, json::Object after);
void write_event(Outcome& out, const kube::ResourceType& type, const kube::ObjectMeta& meta, const Notice& notice);
/// Applies a child unless the cache has it with the same hash.
void write_child(Outcome& out, const Stores& stores, Desired desired);
void write_delete(Outcome& out, const kube::ResourceType& type, const kube::ObjectMeta& meta);
/// Deletes children of this owner, of a kind, whose names aren't in `desired`.
void prune(Outcome& out, const Stores& stores, const kube::ResourceType& type, std::string_view owner_uid,
           const std::vector<Desired>& desired);

/// What the API server said to the last write of this key, for a condition: the reason and a sentence. Conflicts and
/// lost connections are no news.
Problem refusal_of(const Context& context);
/// What it said to a pod that was only tried: the template isn't one that it takes.
std::optional<Problem> trial_refusal_of(const Context& context);

}  // namespace penstock::ctl
