// Decides what each step computes and what its results mean. A choice is (known tokens, computed tokens) and catches
// up: prefill, chunked prefill, decode, resume after preemption or migration are one case. Pure: no thread, no clock.
// Owner: the engine. Use: commands while no step is under way; plan(), execute, apply(); take_output() after each.
// While one is executed, plan_ahead() may give the next one, which is applied after it. Spans in a plan: executor.hpp.
// Bounds: SchedulerConfig; two steps under way. Rules and reasons: docs/contracts/engine.md.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/protocol/messages.hpp"
#include "common/time/clock.hpp"
#include "worker/core/kv/kv_cache.hpp"
#include "worker/engine/executor.hpp"
#include "worker/engine/kv_transfer.hpp"

namespace penstock::worker {

/// How blocks get their names. The engine gives BLAKE3 (common/text/block_hash.hpp).
class PrefixHasher {
 public:
  virtual ~PrefixHasher() = default;
  virtual BlockHash root(const std::string& cache_salt, const std::string& adapter) const = 0;
  virtual std::vector<BlockHash> hash_blocks(BlockHash parent, std::span<const TokenId> tokens) const = 0;
};

struct SchedulerConfig {
  std::uint32_t step_tokens_max = 512;
  std::uint32_t sequences_max = 64;
  std::uint32_t waiting_max = 1024;
  std::uint32_t prefill_chunk_tokens_max = 256;
  std::uint32_t context_tokens = 0;
  std::uint32_t vocabulary_size = 0;
  std::uint32_t blocks = 0;
  std::uint32_t block_tokens = 16;
  float pinned_share_max = 0.75f;
  bool prefix_cache = true;
  bool transfer = false;  // whether PREFILL and EXPECT are taken
  std::vector<TokenId> eos_tokens;
  Duration retry_after = std::chrono::seconds(1);  // what refused requests are told
};

// What the engine does to its KvTransferPort, as values.
struct BeginSend {
  protocol::TransferRoute route;
  RequestId request;
};
struct BeginReceive {
  protocol::TransferRoute route;
  RequestId request;
  Duration deadline{};
};
struct RefuseReservation {
  TransferKey key;
  std::uint32_t chunk = 0;
};
struct ReofferSend {
  protocol::TransferRoute route;
};
struct CancelTransfer {
  TransferKey key;
  std::string reason;
};
using TransferAction =
    std::variant<BeginSend, OfferChunk, BeginReceive, Reservation, RefuseReservation, ReofferSend, CancelTransfer>;

struct Admission {
  Duration wait{};
  std::uint32_t prompt_tokens = 0;
  std::uint32_t cached_tokens = 0;
};

struct SchedulerOutput {
  std::vector<protocol::ChoiceStep> steps;
  std::vector<protocol::RequestError> errors;
  std::vector<protocol::TransferStatus> statuses;
  std::vector<TransferAction> actions;
  std::vector<std::pair<RequestId, std::uint32_t>> ended;  // request and attempt; once each, after everything else
  std::vector<Admission> admissions;
  std::uint32_t preempted = 0, aborted = 0, refused = 0, not_finite = 0;
};

struct Request;
struct Sequence;

class Scheduler {
 public:
  Scheduler(SchedulerConfig config, const PrefixHasher& hasher);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  void generate(protocol::Generate command, TimePoint now);
  void prefill(protocol::Prefill command, TimePoint now);
  void expect(protocol::Expect command, TimePoint now);
  void reoffer(const protocol::Reoffer& command);
  void release(const protocol::Release& command);
  void abort(const protocol::Abort& command);
  void on_transfer(const TransferEvent& event, TimePoint now);
  void drain() { draining_ = true; }
  /// Ends every request with this error.
  void fail_all(const Error& error);

  /// The next step; no sequences: nothing can run until a command, a transfer event or next_deadline().
  const StepBatch& plan(TimePoint now);
  /// The step behind the one under way, before that one's tokens are known: its choices that may go on, a token each.
  /// One that turns out to have ended is in it nevertheless, and apply() ignores its row. Null: the results must come
  /// first.
  const StepBatch* plan_ahead(TimePoint now);
  /// Of the oldest step under way.
  void apply(const StepResult& result, TimePoint now);
  std::uint32_t steps_under_way() const { return steps_under_way_; }
  SchedulerOutput take_output();
  /// Requests of which a choice gave no token since the last call, although something moved for it: its own prompt or
  /// transfer, or, while it waits, anybody's. A request that is stuck is not in it.
  std::vector<protocol::Progress> take_progress();

  std::optional<TimePoint> next_deadline() const;
  bool is_drained() const {
    return draining_ && steps_under_way_ == 0 && requests_.empty() && sends_.empty() && receives_.empty();
  }
  /// Fills the fields that the scheduler knows.
  protocol::Load load() const;
  KvCache& cache() { return cache_; }
  const KvCache& cache() const { return cache_; }
  std::uint32_t decode_tokens() const { return decode_tokens_; }  // of the last plan
  std::uint32_t prefill_tokens() const { return prefill_tokens_; }
  /// Takes every running choice off its row and lets it compute again; for tests and for operators.
  void preempt_all();

 private:
  struct SendState;
  struct ReceiveState;
  struct KeyOrder {
    bool operator()(const TransferKey& a, const TransferKey& b) const {
      return a.transfer != b.transfer ? a.transfer < b.transfer : a.attempt < b.attempt;
    }
  };
  struct Planned {
    Sequence* sequence = nullptr;  // null once dropped
    std::size_t tokens = 0;
  };
  struct PlannedStep {
    StepBatch batch;
    std::vector<Planned> planned;          // same order as batch.sequences
    std::vector<BlockIndex> copy_sources;  // held until it is applied
  };
  struct PendingCopy {  // `from` holds a reference until the copy has run
    BlockIndex from = 0, to = 0;
    std::uint64_t to_generation = 0;
  };

  // intake.cpp
  Request* take(protocol::GenerateSpec spec, const std::optional<TransferKey>& key, bool expects, TimePoint now);
  bool supersede(const protocol::GenerateSpec& spec);
  void make_sequences(Request& request);
  void start(Request& request);
  void enqueue(Sequence& sequence, TimePoint now);
  void expire(TimePoint now);
  void fail(Request& request, Error error);
  void abort_sequence(Sequence& sequence, std::uint32_t tokens_kept);
  void drop_sequence(Sequence& sequence);
  void promote_leader(Request& request, Sequence& gone);
  void close(Request& request, const std::string& reason);
  void complete(Request& request);

  // refusals.cpp
  std::optional<Error> find_fault(const protocol::GenerateSpec& spec, bool transfers) const;
  std::size_t choices_without_row() const;
  std::optional<Error> find_shortage(const protocol::GenerateSpec& spec, bool sends) const;
  void refuse(const protocol::GenerateSpec& spec, Error error);

  // blocks.cpp
  void extend_hashes(Sequence& sequence, std::size_t tokens);
  void commit_blocks(Sequence& sequence);
  void release_blocks(Sequence& sequence);
  void forget_output(Sequence& sequence, std::uint32_t tokens_kept);
  void share_prefix(Sequence& to, const Sequence& from, std::size_t tokens);
  void fork_followers(Sequence& leader, std::size_t tokens);
  std::optional<BlockIndex> copy_of(BlockIndex from);
  void prune_copies();

  // plan.cpp
  bool fill(TimePoint now);
  void admit_waiting(std::uint32_t& budget, TimePoint now);
  bool admit(Sequence& sequence, TimePoint now);
  /// Whether it may take cached blocks; not if its whole prompt is scored.
  bool uses_prefix(const Sequence& sequence) const;
  void attach_prefix(Sequence& sequence);
  bool schedule(Sequence& sequence, std::size_t tokens);
  void plan_tokens(Sequence& sequence, std::size_t tokens);
  bool make_room(const Sequence& sequence);
  void preempt(Sequence& sequence);
  bool preempt_worst();
  std::uint32_t outstanding() const;
  void build_batch();
  SequenceStep step_for(const Sequence& sequence, std::size_t tokens) const;
  PlannedStep& step_to_plan() { return steps_[(oldest_step_ + steps_under_way_) % steps_.size()]; }

  // ahead.cpp
  bool may_plan_ahead(TimePoint now) const;
  void schedule_ahead(Sequence& sequence);

  // apply.cpp
  void advance(Sequence& sequence, std::size_t tokens, const SequenceResult& result);
  void emit_token(Sequence& sequence, const SequenceResult& result);
  void emit_finish(Sequence& sequence, protocol::FinishReason reason);
  protocol::ChoiceStep step_of(const Sequence& sequence) const;
  std::optional<protocol::FinishReason> finish_of(const Sequence& sequence) const;

  // transfers.cpp
  void offer_progress(Request& request);
  void offer(const TransferKey& key, SendState& send, std::size_t token_end, bool last);
  void complete_blocks(Sequence& leader);
  Request* find_request(const TransferKey& key);
  void on_event(const ReserveBlocks& event);
  void on_event(const ChunkCommitted& event);
  void on_event(const ChunkDiscarded& event);
  void on_event(const ReceiveComplete& event);
  void on_event(const ReceiveFailed& event);
  void on_event(const ChunkReleased& event);
  void on_event(const SendEnded& event);
  std::optional<std::string> find_fault(const ReceiveState& receive, const ReserveBlocks& event) const;
  void start_received(Request& request, const ReceiveComplete& event);

  SchedulerConfig config_;
  const PrefixHasher& hasher_;
  KvCache cache_;
  std::map<RequestId, std::unique_ptr<Request>> requests_;
  std::map<TransferKey, SendState, KeyOrder> sends_;
  std::map<TransferKey, ReceiveState, KeyOrder> receives_;
  std::vector<Sequence*> running_, waiting_;  // by priority, then arrival
  std::vector<std::uint32_t> rows_;           // free ones
  std::vector<PendingCopy> copies_;
  std::array<PlannedStep, 2> steps_;  // a ring
  std::uint32_t oldest_step_ = 0, steps_under_way_ = 0;
  std::uint32_t decode_tokens_ = 0, prefill_tokens_ = 0;
  std::uint64_t arrivals_ = 0;
  std::uint64_t computed_tokens_ = 0, told_computed_tokens_ = 0;  // of all; told: at the last progress report
  TimePoint now_{};
  std::optional<TimePoint> due_;  // no deadline is before it
  bool is_full_ = false;          // whoever waits first found too few blocks, and no choice has ended since
  bool draining_ = false;
  SchedulerOutput output_;
};

}  // namespace penstock::worker
