#include "router/core/fleet.hpp"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "common/base/check.hpp"
#include "router/core/fleet_state.hpp"

namespace penstock::router {

Fleet::Fleet(FleetSettings settings, std::uint64_t seed) : state_(std::make_unique<State>(std::move(settings), seed)) {}
Fleet::~Fleet() = default;

WelcomeVerdict Fleet::on_welcome(const protocol::Welcome& welcome, std::string address,
                                 std::span<const BlockHash> expected_probe, TimePoint now) {
  State& s = *state_;
  s.now = std::max(s.now, now);
  Examination examination = examine(welcome, s.rules, expected_probe);
  if (examination.refusal == Refusal::none && s.registry.has_instance(welcome.instance)) {
    examination = {Refusal::duplicate_instance, "this instance is connected already"};
  }
  WorkerInfo info{.instance = welcome.instance,
                  .role = welcome.role,
                  .sequences_max = welcome.sequences_max,
                  .context_tokens = welcome.card.context_tokens,
                  .tensor_parallel = welcome.tensor_parallel,
                  .kv_blocks = welcome.kv_blocks,
                  .address = std::move(address),
                  .kv_address = welcome.kv_address,
                  .kv_layout_fingerprint = welcome.kv_layout_fingerprint,
                  .transfer_groups = TransferGroups(welcome.kv_layout_fingerprint, welcome.topology)};
  const auto usable = [&](std::uint32_t slot) { return s.index.is_clean(slot); };
  WorkerEntry* entry = s.registry.add(std::move(info), examination, now, usable);
  if (entry == nullptr) return {{}, Refusal::capacity, "the fleet has as many workers as it may", SnapshotNeed::none};
  const std::uint32_t slot = entry->ref.slot;
  if (slot >= s.loads.size()) s.loads.resize(slot + 1);
  if (slot >= s.streams.size()) s.streams.resize(slot + 1);
  s.loads[slot] = LoadView{};
  WelcomeVerdict verdict{entry->ref, examination.refusal, examination.detail, SnapshotNeed::none};
  if (examination.refusal != Refusal::none) return verdict;
  if (s.rules.model.empty()) s.rules.model = welcome.card.name;
  if (s.rules.revision.empty()) s.rules.revision = welcome.card.revision;
  if (s.rules.hash_scheme.empty()) s.rules.hash_scheme = welcome.hash_scheme;
  s.index.add_worker(slot);
  s.streams[slot] = std::make_unique<EventStream>(s.index, s.event_counts, slot, welcome.epoch, now);
  verdict.snapshot = SnapshotNeed::request;
  return verdict;
}

SnapshotNeed Fleet::on_cache_events(WorkerRef worker, const protocol::CacheEvents& events, TimePoint now) {
  EventStream* stream = state_->stream(worker, now);
  if (stream == nullptr) return SnapshotNeed::none;
  state_->index.sweep(1);
  return stream->on_events(events, now);
}

SnapshotNeed Fleet::on_snapshot(WorkerRef worker, const protocol::Snapshot& part, TimePoint now) {
  EventStream* stream = state_->stream(worker, now);
  return stream == nullptr ? SnapshotNeed::none : stream->on_snapshot(part, now);
}

void Fleet::on_load(WorkerRef worker, const protocol::Load& load, TimePoint now) {
  WorkerEntry* entry = state_->entry(worker);
  if (entry == nullptr) return;
  state_->now = std::max(state_->now, now);
  state_->loads[worker.slot].on_report(load, now);
  state_->registry.on_load(*entry, now);
  if (load.draining) state_->registry.on_draining(*entry);
}

void Fleet::on_suspect(WorkerRef worker) {
  if (WorkerEntry* entry = state_->entry(worker)) state_->registry.on_suspect(*entry);
}

void Fleet::on_alive(WorkerRef worker) {
  if (WorkerEntry* entry = state_->entry(worker)) state_->registry.on_alive(*entry, state_->now);
}

void Fleet::on_draining(WorkerRef worker) {
  if (WorkerEntry* entry = state_->entry(worker)) state_->registry.on_draining(*entry);
}

void Fleet::on_labels(WorkerRef worker, const TopologyLabels& labels) {
  WorkerEntry* entry = state_->entry(worker);
  if (entry != nullptr) entry->info.transfer_groups = TransferGroups(entry->info.kv_layout_fingerprint, labels);
}

void Fleet::on_disconnect(WorkerRef worker) {
  WorkerEntry* entry = state_->entry(worker);
  if (entry == nullptr) return;
  if (state_->streams[worker.slot] != nullptr) {
    state_->streams[worker.slot].reset();
    state_->index.remove_worker(worker.slot);
  }
  state_->registry.remove(worker);
  state_->loads[worker.slot] = LoadView{};
}

Placement Fleet::choose(const PlacementRequest& request, TimePoint now) {
  State& s = *state_;
  s.now = std::max(s.now, now);
  s.index.expire(now);
  s.index.match(request.blocks, s.match);
  Placement placement = s.policy.choose(request, s.registry.slots(), s.loads, s.match.blocks, now, s.random);
  switch (placement.outcome) {
    case Outcome::placed:
      ++(placement.prefill ? s.counts.placed_split : s.counts.placed_whole);
      s.counts.cached_tokens += placement.cached_tokens;
      s.counts.cached_tokens_lost += placement.cached_tokens_best - placement.cached_tokens;
      s.counts.prompt_tokens += request.prompt_tokens;
      break;
    case Outcome::must_queue:
      ++s.counts.queued;
      break;
    case Outcome::rejected:
      ++s.counts.rejected;
      break;
  }
  return placement;
}

std::uint32_t Fleet::longest_match(std::span<const BlockHash> blocks, TimePoint now) {
  State& s = *state_;
  s.now = std::max(s.now, now);
  s.index.expire(now);
  s.index.match(blocks, s.match);
  const auto longest = std::max_element(s.match.blocks.begin(), s.match.blocks.end());
  return longest == s.match.blocks.end() ? 0 : *longest * s.settings.block_tokens;
}

DispatchId Fleet::on_dispatched(const PlacementRequest& request, const Placement& placement, TimePoint now) {
  State& s = *state_;
  PENSTOCK_CHECK(placement.outcome == Outcome::placed);
  s.now = std::max(s.now, now);
  const PolicySettings& policy = s.settings.policy;
  State::Dispatch dispatch;
  dispatch.cached_tokens = placement.cached_tokens;
  const std::uint64_t output =
      std::uint64_t{std::min(request.output_tokens_max, policy.output_tokens_expected)} * request.choices;
  const std::uint64_t prompt_blocks = request.prompt_tokens / s.settings.block_tokens + 1;
  const auto add = [&](State::Holder& holder, WorkerRef worker, std::uint64_t prefill, std::uint64_t out) {
    holder.worker = worker;
    holder.share = {0, prefill, out, prompt_blocks + out / s.settings.block_tokens, out == 0 ? 1 : request.choices};
    if (s.entry(worker) == nullptr) return holder.worker = WorkerRef{}, void();
    s.loads[worker.slot].on_dispatched(holder.share, now, policy.recent_half_life);
    s.index.predict(worker.slot, 0, request.blocks, now + s.settings.predicted_life);
  };
  if (placement.prefill) {
    add(dispatch.prefill, *placement.prefill, placement.uncached_tokens, 0);
    add(dispatch.whole, placement.worker, 0, output);
  } else {
    add(dispatch.whole, placement.worker, placement.uncached_tokens, output);
  }
  dispatch.blocks.assign(request.blocks.begin(), request.blocks.end());
  s.dispatches.emplace(++s.last_dispatch, std::move(dispatch));
  return s.last_dispatch;
}

void Fleet::on_first_token(DispatchId id, const std::optional<protocol::Usage>& usage) {
  State::Dispatch* dispatch = state_->dispatch(id);
  if (dispatch == nullptr) return;
  for (State::Holder* holder : {&dispatch->prefill, &dispatch->whole}) {
    if (LoadView* load = state_->load(holder->worker)) load->on_prefilled(holder->share);
  }
  dispatch->has_token = true;
  dispatch->blocks = {};
  if (!usage) return;
  state_->counts.cached_tokens_reported += usage->cached_tokens;
  state_->counts.cached_tokens_promised += dispatch->cached_tokens;
}

void Fleet::on_tokens(DispatchId id, std::uint32_t tokens) {
  State::Dispatch* dispatch = state_->dispatch(id);
  if (dispatch == nullptr) return;
  LoadView* load = state_->load(dispatch->whole.worker);
  if (load == nullptr) return;
  load->on_tokens(dispatch->whole.share, tokens, state_->settings.policy.recent_half_life, state_->now);
}

void Fleet::on_prefill_finished(DispatchId id) {
  State::Dispatch* dispatch = state_->dispatch(id);
  if (dispatch != nullptr) state_->close(dispatch->prefill);
}

void Fleet::on_finished(DispatchId id) {
  State::Dispatch* dispatch = state_->dispatch(id);
  if (dispatch == nullptr) return;
  state_->close(dispatch->prefill);
  state_->close(dispatch->whole);
  state_->dispatches.erase(id);
}

void Fleet::on_aborted(DispatchId id) {
  State::Dispatch* dispatch = state_->dispatch(id);
  if (dispatch == nullptr) return;
  if (!dispatch->has_token) {
    for (const State::Holder* holder : {&dispatch->prefill, &dispatch->whole}) {
      if (state_->load(holder->worker) != nullptr) state_->index.unpredict(holder->worker.slot, dispatch->blocks);
    }
  }
  on_finished(id);
}

std::vector<WorkerRef> Fleet::tick(TimePoint now) {
  State& s = *state_;
  s.now = std::max(s.now, now);
  s.registry.tick(now, s.settings.join_grace);
  s.index.expire(now);
  s.index.sweep(State::sweep_cells);
  std::vector<WorkerRef> asked;
  for (const WorkerEntry& entry : s.registry.slots()) {
    if (entry.ref.is_none() || s.streams[entry.ref.slot] == nullptr) continue;
    const SnapshotNeed need = s.streams[entry.ref.slot]->tick(now, s.settings.snapshot_wait);
    if (need == SnapshotNeed::request) asked.push_back(entry.ref);
  }
  return asked;
}

}  // namespace penstock::router
