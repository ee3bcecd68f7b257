// What this worker says of itself in WELCOME, and the fingerprint that keeps strangers from exchanging KV.
// Called once at start; the result is const.
#pragma once

#include "common/text/block_hash.hpp"
#include "worker/app/config.hpp"
#include "worker/engine/executor.hpp"
#include "worker/model/loader.hpp"
#include "worker/server/control_server.hpp"

namespace penstock::worker {

/// What router and worker both hash a block of the base model with.
text::BlockExtraKeys block_extra_keys(const protocol::ModelCard& card, KvDtype dtype);

/// Digest of everything that must agree for one worker to use another's KV bytes: model revision, slab order, sizes.
std::string layout_fingerprint(const protocol::ModelCard& card, const KvGeometry& geometry);

/// `kv_address` is filled in when the transfer service has its port.
WorkerIdentity make_identity(const WorkerConfig& config, const LoadedModel& model, const Executor& executor,
                             const KvPoolView& pool, const text::BlockHashKey& key);

}  // namespace penstock::worker
