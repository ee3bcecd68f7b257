// Requests in and out: taking, ending, deadlines, aborts.
#include <algorithm>

#include "common/base/check.hpp"
#include "worker/core/scheduler/request.hpp"

namespace penstock::worker {

Scheduler::Scheduler(SchedulerConfig config, const PrefixHasher& hasher)
    : config_(std::move(config)), hasher_(hasher), cache_(config_.blocks, config_.block_tokens) {
  PENSTOCK_CHECK(config_.step_tokens_max > 0 && config_.sequences_max > 0 && config_.prefill_chunk_tokens_max > 0);
  // Every running choice must fit a step with one token, or the last ones would starve.
  config_.sequences_max = std::min(config_.sequences_max, config_.step_tokens_max);
  for (std::uint32_t row = config_.sequences_max; row > 0; --row) rows_.push_back(row - 1);
}

Scheduler::~Scheduler() = default;

void Scheduler::generate(protocol::Generate command, TimePoint now) {
  Request* request = take(std::move(command.spec), std::nullopt, false, now);
  if (request) start(*request);
}

void Scheduler::start(Request& request) {
  std::vector<Sequence*> done;
  for (const auto& sequence : request.sequences) {
    if (sequence->state != SequenceState::waiting) continue;
    const bool is_done = sequence->output() > 0 && finish_of(*sequence);  // a resumed choice had its last token already
    if (is_done) done.push_back(sequence.get());
    if (!is_done) enqueue(*sequence, now_);
  }
  for (Sequence* sequence : done) emit_finish(*sequence, *finish_of(*sequence));
  if (request.sequences.empty()) close(request, "every choice had ended before");
}

void Scheduler::prefill(protocol::Prefill command, TimePoint now) {
  const TransferKey key{command.route.transfer, command.route.attempt};
  Request* request = take(std::move(command.spec), key, false, now);
  if (!request) return;
  SendState& send = sends_[key];
  send.request = request->spec.request;
  send.attempt = request->spec.attempt;
  Sequence& first = *request->sequences.front();
  send.total = first.tokens.size();
  extend_hashes(first, send.total);
  if (!request->leader) {  // a resumed choice; its prompt was scored before
    request->leader = &first;
    request->prompt_scored = true;
  }
  output_.actions.emplace_back(BeginSend{std::move(command.route), request->spec.request});
  start(*request);
}

void Scheduler::expect(protocol::Expect command, TimePoint now) {
  const TransferKey key{command.route.transfer, command.route.attempt};
  Request* request = take(std::move(command.spec), key, true, now);
  if (!request) return;
  Sequence& first = *request->sequences.front();
  request->leader = &first;
  for (const auto& sequence : request->sequences) sequence->state = SequenceState::blocked;
  first.state = SequenceState::receiving;
  extend_hashes(first, first.tokens.size());
  if (config_.prefix_cache) first.blocks = cache_.match(request->root, first.hashes, first.tokens);
  first.committed = first.blocks.size();
  first.computed = first.blocks.size() * config_.block_tokens;
  first.cached_tokens = static_cast<std::uint32_t>(first.computed);
  ReceiveState& receive = receives_[key];
  receive.request = request;
  receive.matched = first.blocks.size();
  output_.actions.emplace_back(BeginReceive{std::move(command.route), request->spec.request, request->spec.deadline});
}

Request* Scheduler::take(protocol::GenerateSpec spec, const std::optional<TransferKey>& key, bool expects,
                         TimePoint now) {
  PENSTOCK_CHECK(steps_under_way_ == 0);
  now_ = now;
  if (!supersede(spec)) return nullptr;
  auto fault = find_fault(spec, key.has_value());
  if (!fault && key && (sends_.contains(*key) || receives_.contains(*key))) {
    fault = make_error(ErrorCode::invalid_argument,
                       "transfer " + to_string(key->transfer) + " is already known with this attempt");
  }
  if (!fault) fault = find_shortage(spec, key && !expects);
  if (fault) {
    refuse(spec, std::move(*fault));
    return nullptr;
  }
  auto request = std::make_unique<Request>();
  request->key = key;
  request->expects = expects;
  request->arrival = ++arrivals_;
  if (spec.deadline > Duration::zero()) {
    request->deadline = now + spec.deadline;
    due_ = due_ ? std::min(*due_, *request->deadline) : *request->deadline;
  }
  request->root = hasher_.root(spec.cache_salt, spec.adapter);
  request->output_limit = static_cast<std::uint32_t>(
      std::min<std::size_t>(spec.sampling.tokens_max, config_.context_tokens - spec.prompt.size()));
  request->ends = spec.sampling.stop_token_ids;
  if (!spec.sampling.ignore_eos) {
    request->ends.insert(request->ends.end(), config_.eos_tokens.begin(), config_.eos_tokens.end());
  }
  request->prompt_scored = !spec.sampling.prompt_logprobs || expects;
  request->spec = std::move(spec);
  make_sequences(*request);
  Request* taken = request.get();
  requests_[taken->spec.request] = std::move(request);
  return taken;
}

bool Scheduler::supersede(const protocol::GenerateSpec& spec) {
  const auto known = requests_.find(spec.request);
  if (known == requests_.end()) return true;
  Request& old = *known->second;
  if (old.spec.attempt < spec.attempt) {
    fail(old, make_error(ErrorCode::aborted, "superseded by a newer attempt"));
    return true;
  }
  if (old.spec.attempt > spec.attempt) {
    refuse(spec, make_error(ErrorCode::aborted, "a newer attempt of this request is running"));
  }
  return false;  // the same dispatch twice is one request
}

void Scheduler::make_sequences(Request& request) {
  const std::vector<TokenId> prompt = std::exchange(request.spec.prompt, {});
  const std::vector<protocol::Choice> choices = std::exchange(request.spec.choices, {});
  const bool is_named = config_.prefix_cache || request.key;
  const std::vector<BlockHash> hashes = is_named ? hasher_.hash_blocks(request.root, prompt) : std::vector<BlockHash>{};
  for (const protocol::Choice& choice : choices) {
    auto sequence = std::make_unique<Sequence>();
    sequence->request = &request;
    sequence->choice = choice.index;
    sequence->prompt = prompt.size();
    sequence->tokens.reserve(prompt.size() + request.output_limit);
    sequence->tokens = prompt;
    sequence->tokens.insert(sequence->tokens.end(), choice.accepted.begin(), choice.accepted.end());
    sequence->hashes = hashes;
    if (choice.accepted.empty()) {
      if (request.leader) sequence->state = SequenceState::blocked;
      if (!request.leader) request.leader = sequence.get();
    }
    request.sequences.push_back(std::move(sequence));
  }
}

void Scheduler::enqueue(Sequence& sequence, TimePoint now) {
  sequence.state = SequenceState::waiting;
  sequence.queued_at = now;
  // Known already while it waits, so that load() can leave out what it will find in the cache.
  if (uses_prefix(sequence)) extend_hashes(sequence, sequence.tokens.size());
  waiting_.insert(std::upper_bound(waiting_.begin(), waiting_.end(), &sequence, goes_before), &sequence);
}

void Scheduler::fail(Request& request, Error error) {
  output_.errors.push_back({request.spec.request, request.spec.attempt, error, {}});
  close(request, error.message);
}

void Scheduler::fail_all(const Error& error) {
  for (PlannedStep& step : steps_) {
    for (const BlockIndex block : step.copy_sources) cache_.release(block);
    step.copy_sources.clear();
  }
  steps_under_way_ = 0;
  while (!requests_.empty()) fail(*requests_.begin()->second, error);
}

void Scheduler::expire(TimePoint now) {
  if (!due_ || *due_ > now) return;
  std::vector<Request*> late;
  for (const auto& [id, request] : requests_) {
    if (request->deadline && *request->deadline <= now) late.push_back(request.get());
  }
  for (Request* request : late) fail(*request, make_error(ErrorCode::deadline_exceeded, "the deadline has passed"));
  due_ = next_deadline();
}

std::optional<TimePoint> Scheduler::next_deadline() const {
  std::optional<TimePoint> next;
  for (const auto& [id, request] : requests_) {
    if (request->deadline && (!next || *request->deadline < *next)) next = request->deadline;
  }
  return next;
}

void Scheduler::abort(const protocol::Abort& command) {
  PENSTOCK_CHECK(steps_under_way_ == 0);
  const auto found = requests_.find(command.request);
  if (found == requests_.end()) {
    for (auto& [key, send] : sends_) {
      if (send.request != command.request || send.cancelled || command.choice) continue;
      send.cancelled = true;
      output_.actions.emplace_back(CancelTransfer{key, "aborted"});
    }
    return;
  }
  Request& request = *found->second;
  std::vector<Sequence*> gone;
  for (const auto& sequence : request.sequences) {
    if (!command.choice || *command.choice == sequence->choice) gone.push_back(sequence.get());
  }
  for (Sequence* sequence : gone) abort_sequence(*sequence, command.tokens_kept);
  if (!request.sequences.empty()) return;
  const auto send = request.sends() ? sends_.find(*request.key) : sends_.end();
  const bool has_tokens = command.choice && send != sends_.end() && !send->second.first_tokens.empty();
  if (has_tokens) complete(request);  // the choices that are left have their first tokens
  if (!has_tokens) close(request, command.reason.empty() ? "aborted" : command.reason);
}

void Scheduler::abort_sequence(Sequence& sequence, std::uint32_t tokens_kept) {
  const Request& request = *sequence.request;
  protocol::ChoiceStep step;
  step.request = request.spec.request;
  step.attempt = request.spec.attempt;
  step.choice = sequence.choice;
  step.position = sequence.output();
  step.finish = protocol::FinishReason::aborted;
  step.usage = {static_cast<std::uint32_t>(sequence.prompt), sequence.cached_tokens, sequence.transferred_tokens};
  output_.steps.push_back(std::move(step));
  ++output_.aborted;
  forget_output(sequence, tokens_kept);
  drop_sequence(sequence);
}

void Scheduler::drop_sequence(Sequence& sequence) {
  Request& request = *sequence.request;
  if (sequence.state == SequenceState::running) rows_.push_back(sequence.row);
  std::erase(running_, &sequence);
  std::erase(waiting_, &sequence);
  for (PlannedStep& step : steps_) {
    for (Planned& planned : step.planned) {
      if (planned.sequence == &sequence) planned.sequence = nullptr;
    }
  }
  is_full_ = false;
  if (request.leader == &sequence) promote_leader(request, sequence);
  release_blocks(sequence);
  std::erase_if(request.sequences, [&](const auto& owned) { return owned.get() == &sequence; });
}

// The leader goes before the others have forked: the next one takes its place.
void Scheduler::promote_leader(Request& request, Sequence& gone) {
  request.leader = nullptr;
  for (const auto& sequence : request.sequences) {
    if (sequence->state == SequenceState::blocked) {
      request.leader = sequence.get();
      break;
    }
  }
  if (!request.expects) {
    request.prompt_logprobs.clear();
    if (request.leader) enqueue(*request.leader, now_);
    return;
  }
  if (gone.state != SequenceState::receiving) return;
  ReceiveState& receive = receives_.at(*request.key);
  if (!request.leader) {
    receive.orphans = std::exchange(gone.blocks, {});
    receive.request = nullptr;
    return;
  }
  Sequence& next = *request.leader;
  next.state = SequenceState::receiving;
  next.blocks = std::exchange(gone.blocks, {});
  next.hashes = gone.hashes;
  next.committed = gone.committed;
  next.computed = gone.computed;
  next.cacheable = gone.cacheable;
  next.cached_tokens = gone.cached_tokens;
}

// Ends what is left of a request at this worker. Blocks that a peer may be reading or filling stay with the transfer.
void Scheduler::close(Request& request, const std::string& reason) {
  while (!request.sequences.empty()) drop_sequence(*request.sequences.back());
  const RequestId id = request.spec.request;
  const std::uint32_t attempt = request.spec.attempt;
  const auto key = request.key;
  const bool expects = request.expects;
  requests_.erase(id);
  if (key && expects) {
    if (receives_.contains(*key)) output_.actions.emplace_back(CancelTransfer{*key, reason});
  } else if (key) {
    const auto send = sends_.find(*key);
    if (send != sends_.end()) {
      if (!send->second.cancelled) output_.actions.emplace_back(CancelTransfer{*key, reason});
      send->second.cancelled = true;
      return;  // the end is said with SendEnded
    }
  }
  output_.ended.emplace_back(id, attempt);
}

// Every choice has ended. A prefill goes on as a transfer, whose end is the end.
void Scheduler::complete(Request& request) {
  if (request.sends()) offer_progress(request);
  const bool goes_on = request.sends() && sends_.contains(*request.key);
  if (!goes_on) output_.ended.emplace_back(request.spec.request, request.spec.attempt);
  requests_.erase(RequestId(request.spec.request));
}

SchedulerOutput Scheduler::take_output() {
  return std::exchange(output_, {});
}

protocol::Load Scheduler::load() const {
  protocol::Load load;
  load.running = static_cast<std::uint32_t>(running_.size());
  for (const auto& [id, request] : requests_) {
    for (const auto& sequence : request->sequences) {
      const bool waits = sequence->state == SequenceState::waiting;
      if (sequence->state != SequenceState::running) ++load.waiting;
      if (sequence->remaining() > 1 && (waits || sequence->state == SequenceState::running)) {
        const bool finds = waits && uses_prefix(*sequence);
        const std::size_t cached = finds ? cache_.count_cached(sequence->hashes) * config_.block_tokens : 0;
        load.waiting_prefill_tokens += sequence->remaining() - std::min(cached, sequence->remaining() - 1);
      }
      if (sequence->state == SequenceState::running) load.context_tokens += sequence->tokens.size();
    }
  }
  load.kv_blocks_total = cache_.blocks();
  load.kv_blocks_free = cache_.available();
  load.kv_blocks_pinned = cache_.pinned();
  load.draining = draining_;
  return load;
}

}  // namespace penstock::worker
