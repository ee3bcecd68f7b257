#include "router/core/policy/policy.hpp"

#include <algorithm>

#include "router/core/policy/scene.hpp"

namespace penstock::router {

using protocol::Role;

Placement Policy::choose(const PlacementRequest& request, std::span<const WorkerEntry> workers,
                         std::span<const LoadView> loads, std::span<const std::uint32_t> matched_blocks, TimePoint now,
                         Random& random) {
  const LoadView::Rules rules{settings_.load_stale_after, settings_.recent_half_life, settings_.output_tokens_expected};
  figures_.resize(workers.size());
  bool has_prefill = false;
  for (std::size_t slot = 0; slot < workers.size(); ++slot) {
    if (workers[slot].ref.is_none()) continue;
    figures_[slot] = loads[slot].figures(now, rules);
    has_prefill = has_prefill || workers[slot].info.role == Role::prefill;
  }
  const Scene scene{request, workers, figures_, matched_blocks, now};
  Placement out;
  out.policy = settings_.kind;
  out.candidates.reserve(has_prefill ? workers.size() * 2 : workers.size());
  const auto gather = [&](Duty duty, auto&& takes) {
    const std::size_t first = out.candidates.size();
    for (const WorkerEntry& worker : workers) {
      if (worker.ref.is_none() || !takes(worker.info.role)) continue;
      Candidate& candidate = out.candidates.emplace_back();
      candidate.duty = duty;
      look(scene, worker, candidate);
    }
    return first;
  };
  gather(Duty::whole, [](Role role) { return role != Role::prefill; });
  std::size_t prefill_at = out.candidates.size(), decode_at = prefill_at;
  if (request.split == Split::allowed && has_prefill) {
    gather(Duty::prefill, [](Role role) { return role == Role::prefill; });
    decode_at = gather(Duty::decode, [](Role role) { return role != Role::prefill; });
  }
  const std::size_t end = out.candidates.size();
  std::span<Candidate> all(out.candidates);
  decide(scene, all.subspan(0, prefill_at), all.subspan(prefill_at, decode_at - prefill_at),
         all.subspan(decode_at, end - decode_at), out, random);
  if (out.outcome != Outcome::placed && has_prefill) {
    // Nobody else is able: a prefill worker decodes as well rather than let the request wait or fail.
    const std::size_t first = gather(Duty::whole, [](Role role) { return role == Role::prefill; });
    std::span<Candidate> last(out.candidates.data() + first, out.candidates.size() - first);
    const bool others_full = out.outcome == Outcome::must_queue;
    price_group(scene, last);
    const Candidate* chosen = others_full ? nullptr : pick(last, random);
    if (chosen != nullptr) answer_whole(scene, *chosen, "prefill worker as last resort", out);
    if (chosen == nullptr) answer_none(scene, out);
  }
  for (const Candidate& candidate : out.candidates) {
    const bool counts = candidate.ineligible == Ineligible::no || candidate.ineligible == Ineligible::hot;
    if (counts) out.cached_tokens_best = std::max(out.cached_tokens_best, candidate.cached_tokens);
  }
  return out;
}

void Policy::decide(const Scene& scene, std::span<Candidate> whole, std::span<Candidate> prefill,
                    std::span<Candidate> decode, Placement& out, Random& random) {
  price_group(scene, whole);
  const Candidate* single = pick(whole, random);
  const bool is_short =
      single != nullptr && scene.request.prompt_tokens - single->cached_tokens < settings_.split_tokens_min;
  if (prefill.empty() || is_short) {
    if (single == nullptr) return answer_none(scene, out);
    return answer_whole(scene, *single, prefill.empty() ? "cost" : "short remainder", out);
  }
  const Pair pair = pick_pair(scene, prefill, decode, random);
  if (pair.prefill == nullptr) {
    if (single == nullptr) return answer_none(scene, out);
    return answer_whole(scene, *single, "no prefill worker free", out);
  }
  // A unified worker may still be the better place; a decode worker is spared long prompts.
  const Candidate* unified = nullptr;
  for (const Candidate& candidate : whole) {
    const bool able =
        candidate.ineligible == Ineligible::no && scene.workers[candidate.worker.slot].info.role == Role::unified;
    if (able && (unified == nullptr || candidate.cost < unified->cost)) unified = &candidate;
  }
  if (unified != nullptr && unified->cost < pair.cost()) {
    return answer_whole(scene, *unified, "unified is cheaper than a pair", out);
  }
  out.outcome = Outcome::placed;
  out.prefill = pair.prefill->worker;
  out.worker = pair.decode->worker;
  out.cached_tokens = pair.prefill->cached_tokens;
  out.uncached_tokens = scene.request.prompt_tokens - out.cached_tokens;
  out.why = "pair cost";
}

/// The eligible candidate that the policy prefers, or nullptr; equal ones have equal chances.
const Candidate* Policy::pick(std::span<const Candidate> group, Random& random) {
  const Candidate* best = nullptr;
  std::uint64_t equals = 0;
  const auto draw = [&](const Candidate& candidate, bool better, bool equal) {
    if (better) equals = 0;
    if (better || (equal && random.below(equals + 1) == 0)) best = &candidate;
    if (better || equal) ++equals;
  };
  switch (settings_.kind) {
    case PolicyKind::kv_aware:
    case PolicyKind::least_load:
      for (const Candidate& candidate : group) {
        if (candidate.ineligible != Ineligible::no) continue;
        const bool better = best == nullptr || candidate.cost < best->cost;
        draw(candidate, better, !better && candidate.cost == best->cost);
      }
      return best;
    case PolicyKind::random:
      for (const Candidate& candidate : group) {
        if (candidate.ineligible == Ineligible::no) draw(candidate, best == nullptr, best != nullptr);
      }
      return best;
    case PolicyKind::round_robin: {
      if (group.empty()) return nullptr;
      const std::size_t first = static_cast<std::size_t>(turn_++ % group.size());
      for (std::size_t i = 0; i < group.size(); ++i) {
        const Candidate& candidate = group[(first + i) % group.size()];
        if (candidate.ineligible == Ineligible::no) return &candidate;
      }
      return nullptr;
    }
  }
  return nullptr;
}

void Policy::answer_whole(const Scene& scene, const Candidate& chosen, std::string_view why, Placement& out) const {
  out.outcome = Outcome::placed;
  out.worker = chosen.worker;
  out.cached_tokens = chosen.cached_tokens;
  out.uncached_tokens = scene.request.prompt_tokens - chosen.cached_tokens;
  out.why = why;
}

void Policy::answer_none(const Scene& scene, Placement& out) const {
  std::size_t full = 0, too_long = 0, excluded = 0, coming = 0;
  for (const Candidate& candidate : out.candidates) {
    switch (candidate.ineligible) {
      case Ineligible::full:
        ++full;
        break;
      case Ineligible::too_long:
        ++too_long;
        break;
      case Ineligible::excluded:
        ++excluded;
        break;
      case Ineligible::state: {
        const WorkerState state = scene.workers[candidate.worker.slot].state;
        coming += state == WorkerState::joining || state == WorkerState::suspect ? 1 : 0;
        break;
      }
      case Ineligible::no:
      case Ineligible::hot:
      case Ineligible::unpaired:
        break;
    }
  }
  const auto reject = [&](ErrorCode code, std::string message, Duration retry_after, std::string_view why) {
    out.outcome = Outcome::rejected;
    out.error = make_error(code, std::move(message));
    out.retry_after = retry_after;
    out.why = why;
  };
  if (full != 0 || coming != 0) {
    out.outcome = Outcome::must_queue;
    out.retry_after = std::chrono::seconds(1);
    out.why = full != 0 ? "all workers are full" : "no worker is ready yet";
  } else if (too_long != 0) {
    reject(ErrorCode::invalid_argument, "the prompt is longer than any worker can hold", {}, "too long");
  } else if (excluded != 0) {
    reject(ErrorCode::unavailable, "no other worker is left for this request", std::chrono::seconds(1), "all failed");
  } else {
    reject(ErrorCode::unavailable, "no worker is available", std::chrono::seconds(5), "no worker");
  }
}

}  // namespace penstock::router
