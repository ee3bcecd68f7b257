// The reconciles: from a key and the caches to writes. Pure: they read no clock, send nothing, remember nothing, and
// never see their own writes; the runtime carries writes out in order, stops at the first that fails, and asks again. A
// create that is answered with AlreadyExists counts as done. docs/contracts/reconcile.md has the rules. One thread.
#pragma once

#include <optional>
#include <vector>

#include "common/kube/model/write.hpp"
#include "common/time/clock.hpp"
#include "operator/core/context.hpp"
#include "operator/reconcilers/stores.hpp"

namespace penstock::ctl {

struct Outcome {
  std::vector<kube::Write> writes;
  std::optional<Duration> requeue_after;  // absent: when something changes
  std::optional<Duration> rest;           // how long pod events wait after this look; absent: as the queue has it
};

Outcome reconcile_service(const kube::Key& key, const Stores& stores, const Context& context);
Outcome reconcile_group(const kube::Key& key, const Stores& stores, const Context& context);
Outcome reconcile_scaler(const kube::Key& key, const Stores& stores, const Context& context);
Outcome reconcile_cache(const kube::Key& key, const Stores& stores, const Context& context);
/// The key is a node: what it is to hold of all caches.
Outcome reconcile_node_cache(const kube::Key& key, const Stores& stores, const Context& context);
Outcome reconcile_adapter(const kube::Key& key, const Stores& stores, const Context& context);
Outcome reconcile_topology(const kube::Key& key, const Stores& stores, const Context& context);

}  // namespace penstock::ctl
