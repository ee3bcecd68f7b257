// Who may take a request, and what it would cost there.
#include <algorithm>
#include <cmath>

#include "router/core/policy/scene.hpp"

namespace penstock::router {
namespace {

constexpr float nearly_all = 0.9f;  // of the longest cached part: the rest is soon computed

}  // namespace

std::uint64_t Policy::sequence_cap(const WorkerInfo& info) const {
  const double share = settings_.waiting_allowance * static_cast<double>(info.sequences_max);
  return info.sequences_max +
         std::max<std::uint64_t>(settings_.waiting_allowance_min, static_cast<std::uint64_t>(share));
}

Ineligible Policy::eligibility(const Scene& scene, const WorkerEntry& worker, Duty duty) const {
  if (worker.state != WorkerState::ready) return Ineligible::state;
  const auto& excluded = scene.request.excluded;
  if (std::find(excluded.begin(), excluded.end(), worker.info.instance) != excluded.end()) return Ineligible::excluded;
  const std::uint64_t tokens = std::uint64_t{scene.request.prompt_tokens} + 1;
  if (tokens > worker.info.context_tokens || tokens > worker.info.kv_blocks * block_tokens_)
    return Ineligible::too_long;
  const std::uint64_t running = scene.loads[worker.ref.slot].sequences;
  // One request is always taken by an idle worker, however many choices it has.
  const std::uint64_t added = duty == Duty::prefill ? 1 : scene.request.choices;
  if (running != 0 && running + added > sequence_cap(worker.info)) return Ineligible::full;
  if (duty != Duty::whole && (worker.info.kv_address.empty() || worker.info.kv_layout_fingerprint.empty())) {
    return Ineligible::unpaired;
  }
  return Ineligible::no;
}

void Policy::look(const Scene& scene, const WorkerEntry& worker, Candidate& candidate) const {
  candidate.worker = worker.ref;
  candidate.ineligible = eligibility(scene, worker, candidate.duty);
  if (worker.ref.slot >= scene.matched.size()) return;
  const std::uint64_t cached = std::uint64_t{scene.matched[worker.ref.slot]} * block_tokens_;
  // The last token is always computed, for its logits.
  const std::uint32_t limit = scene.request.prompt_tokens == 0 ? 0 : scene.request.prompt_tokens - 1;
  candidate.cached_tokens = static_cast<std::uint32_t>(std::min<std::uint64_t>(cached, limit));
}

/// For how long a worker has been ready, as far as slow start is concerned.
Duration Policy::age(const Scene& scene, TimePoint ready_since) const {
  return std::clamp(scene.now - ready_since, Duration::zero(), settings_.slow_start);
}

/// The load terms, which do not depend on other candidates. Weights are applied here.
void Policy::price(const Scene& scene, Candidate& candidate) const {
  const LoadView::Figures& load = scene.loads[candidate.worker.slot];
  const double output = std::min(scene.request.output_tokens_max, settings_.output_tokens_expected);
  candidate.wait = settings_.wait_weight * static_cast<float>(load.waiting_tokens);
  double decode = load.decode_tokens;
  if (candidate.duty != Duty::prefill) decode += output * scene.request.choices;
  candidate.decode = settings_.decode_weight * static_cast<float>(decode);

  const std::uint32_t cached = settings_.kind == PolicyKind::kv_aware ? candidate.cached_tokens : 0;
  const double needed =
      (scene.request.prompt_tokens - cached + output * scene.request.choices) / static_cast<double>(block_tokens_);
  const double used = static_cast<double>(load.blocks_used) + needed;
  const double k = std::min(used / static_cast<double>(scene.workers[candidate.worker.slot].info.kv_blocks), 0.999);
  candidate.barrier = settings_.barrier_tokens * static_cast<float>(k / (1 - k));
}

/// Of those that hold the prompt's longest cached part, or nearly, the one that all requests with that part prefer, by
/// rendezvous hashing. Without it copies are used in turn, so none leaves the cache and others' blocks do.
Candidate* Policy::find_home(const Scene& scene, std::span<Candidate> group) const {
  const auto blocks_at = [&](const Candidate& candidate) -> std::uint32_t {
    const bool counts = candidate.cached_tokens != 0 && candidate.ineligible == Ineligible::no;
    return counts && candidate.duty != Duty::decode ? scene.matched[candidate.worker.slot] : 0;
  };
  std::uint32_t longest = 0;
  for (const Candidate& candidate : group) longest = std::max(longest, blocks_at(candidate));
  if (longest == 0) return nullptr;
  const std::uint64_t part = std::hash<BlockHash>()(scene.request.blocks[longest - 1]);
  Candidate* home = nullptr;
  std::uint64_t home_rank = 0;
  for (Candidate& candidate : group) {
    const auto held = static_cast<float>(blocks_at(candidate));
    if (held == 0 || held < nearly_all * static_cast<float>(longest)) continue;
    const InstanceId& instance = scene.workers[candidate.worker.slot].info.instance;
    const std::uint64_t rank = Random(part ^ std::hash<InstanceId>()(instance)).next();
    if (home != nullptr && rank <= home_rank) continue;
    home = &candidate;
    home_rank = rank;
  }
  return home;
}

/// Terms that compare a candidate with the others, and the sum. Only eligible candidates count for the means.
void Policy::price_group(const Scene& scene, std::span<Candidate> group) const {
  double sum = 0, known_wait = 0, recent_least = INFINITY;
  std::size_t eligible = 0, known = 0;
  const auto is_known = [&](const Candidate& candidate) { return scene.loads[candidate.worker.slot].is_fresh; };
  for (Candidate& candidate : group) {
    if (candidate.ineligible != Ineligible::no) continue;
    price(scene, candidate);
    if (!is_known(candidate)) continue;
    known_wait += candidate.wait;
    ++known;
  }
  float wait_least = INFINITY;
  TimePoint oldest = TimePoint::max(), youngest = TimePoint::min();  // by when they became ready
  for (Candidate& candidate : group) {
    if (candidate.ineligible != Ineligible::no) continue;
    // Nothing heard is not nothing to do: such a worker is taken for an average one, plus what we sent it ourselves.
    if (!is_known(candidate) && known != 0) {
      candidate.wait += static_cast<float>(known_wait / static_cast<double>(known));
    }
    wait_least = std::min(wait_least, candidate.wait);
    const TimePoint ready_since = scene.workers[candidate.worker.slot].ready_since;
    oldest = std::min(oldest, ready_since);
    youngest = std::max(youngest, ready_since);
    sum += candidate.wait + candidate.decode;
    recent_least = std::min(recent_least, scene.loads[candidate.worker.slot].recent_tokens);
    ++eligible;
  }
  if (eligible == 0) return;
  const auto mean = static_cast<float>(sum / static_cast<double>(eligible));
  const auto prompt = static_cast<float>(std::max(scene.request.prompt_tokens, 1u));
  const bool uses_cache = settings_.kind == PolicyKind::kv_aware;
  const Candidate* home = uses_cache ? find_home(scene, group) : nullptr;
  const Duration age_most = age(scene, oldest);
  const bool any_behind = age(scene, youngest) != age_most;
  bool any_cool = false;
  for (Candidate& candidate : group) {
    if (candidate.ineligible != Ineligible::no) continue;
    if (candidate.cached_tokens != 0) {
      const float excess = (candidate.wait - wait_least) / prompt;
      candidate.cache_credit = static_cast<float>(candidate.cached_tokens) / (1 + settings_.credit_decay * excess);
    }
    const float weight = candidate.duty == Duty::decode ? settings_.transfer_weight : settings_.uncached_weight;
    candidate.uncached = uses_cache ? weight * (prompt - candidate.cache_credit) : 0;
    if (&candidate == home) candidate.home = -settings_.home_weight * static_cast<float>(candidate.cached_tokens);
    // In proportion to the prompt, since it is to tip the scales between workers, not to outweigh a cache.
    const auto more = static_cast<float>(scene.loads[candidate.worker.slot].recent_tokens - recent_least);
    candidate.recent = std::min(settings_.recent_weight * more, settings_.recent_prompt_weight * prompt);
    const float load = candidate.wait + candidate.decode;
    // By how much it is behind the one that has been here longest: where all are equally new, nobody is spared.
    if (any_behind) {
      const Duration younger = age_most - age(scene, scene.workers[candidate.worker.slot].ready_since);
      const float behind = std::chrono::duration<float>(younger) / std::chrono::duration<float>(settings_.slow_start);
      candidate.slow_start = (1 / std::max(1 - behind, 0.1f) - 1) * (load + candidate.recent + prompt);
    }
    candidate.cost =
        candidate.uncached + candidate.home + load + candidate.recent + candidate.barrier + candidate.slow_start;
    if (load > settings_.gate_relative * mean && load > mean + settings_.gate_absolute_tokens) {
      candidate.ineligible = Ineligible::hot;
    } else {
      any_cool = true;
    }
  }
  if (any_cool) return;
  for (Candidate& candidate : group) {
    if (candidate.ineligible == Ineligible::hot) candidate.ineligible = Ineligible::no;
  }
}

}  // namespace penstock::router
