// What a placement decision is asked and what it answers. Plain values; the decision is a pure function of the fleet's
// state, the request, the time and the seeded random source, and the answer carries every term of every candidate.
// All costs are in tokens of prefill work.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/error.hpp"
#include "common/base/id.hpp"
#include "common/time/clock.hpp"
#include "router/core/membership/worker.hpp"

namespace penstock::router {

enum class PolicyKind : std::uint8_t { kv_aware, least_load, round_robin, random };
std::string_view to_string(PolicyKind kind);
/// "kv-aware", "least-load", "round-robin" or "random".
std::optional<PolicyKind> parse_policy(std::string_view name);

/// Whether prefill and decode may go to different workers.
enum class Split : std::uint8_t { allowed, forbidden };

struct PlacementRequest {
  std::uint32_t prompt_tokens = 0;      // with accepted tokens of a migrated request
  std::span<const BlockHash> blocks;    // of all full blocks of those tokens, first to last; must outlive the call only
  std::uint32_t output_tokens_max = 0;  // a choice, what is left of it
  std::uint32_t choices = 1;
  Split split = Split::allowed;          // forbidden e.g. for prompt logprobs
  std::span<const InstanceId> excluded;  // have failed for this request already
};

/// What a candidate is looked at for.
enum class Duty : std::uint8_t { whole, prefill, decode };
std::string_view to_string(Duty duty);

enum class Ineligible : std::uint8_t {
  no,        // it is eligible
  state,     // not ready
  excluded,  // failed for this request before
  too_long,  // prompt and output can never fit there
  full,      // at its cap of sequences and waiting allowance
  hot,       // far above the fleet's mean load; used only if all are
  unpaired,  // no partner with the same KV layout
};
std::string_view to_string(Ineligible reason);

/// One candidate and every term of its cost; cost = what a policy compares (lowest wins).
struct Candidate {
  WorkerRef worker;
  Duty duty = Duty::whole;
  Ineligible ineligible = Ineligible::no;
  std::uint32_t cached_tokens = 0;  // of the prompt, in confirmed or predicted blocks
  float cache_credit = 0;           // cached tokens after decay by excess backlog
  float uncached = 0;               // weighted prompt tokens to compute (or to transfer, for decode duty)
  float home = 0;                   // negative at the holder that all prompts with the same cached part prefer
  float wait = 0;                   // prefill tokens ahead of this request, with what the last report cannot know
  float decode = 0;                 // in-flight decode work and this request's footprint
  float recent = 0;                 // decayed work sent lately, so that idle gaps do not hide imbalance
  float barrier = 0;                // k/(1-k) on KV use
  float slow_start = 0;             // extra for a worker that has just joined
  float cost = 0;
};

enum class Outcome : std::uint8_t {
  placed,      // `worker` does all, or `prefill` and `worker` share it
  must_queue,  // able workers exist, all are full: ask again when one frees up
  rejected,    // `error` and `retry_after` say why
};

struct Placement {
  Outcome outcome = Outcome::rejected;
  WorkerRef worker;                      // decodes (and prefills, unless `prefill` is set)
  std::optional<WorkerRef> prefill;      // set: PREFILL goes there and EXPECT to `worker`
  std::uint32_t cached_tokens = 0;       // on the worker that prefills
  std::uint32_t uncached_tokens = 0;     // that it must compute
  std::uint32_t cached_tokens_best = 0;  // the longest match among the workers looked at (regret: best - cached)
  Error error;                           // rejected
  Duration retry_after{};                // rejected or must_queue: a hint
  PolicyKind policy = PolicyKind::kv_aware;
  std::string_view why;               // the rule that decided, a constant: "cost", "short remainder", ...
  std::vector<Candidate> candidates;  // in order of slot; a worker appears once for each duty it was looked at for
};

}  // namespace penstock::router
