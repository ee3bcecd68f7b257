// A backend without a model: the next token is a keyed hash of all context tokens, and the executor knows the context
// only from what it wrote into the KV pool. A wrong block table, a stale transfer or a flipped bit gives a wrong token.
// Owner: worker/app, tests and the simulation. Thread: the engine thread. Bounds: the KV pool, allocated at
// construction.
//
// Record of a token: every 8-byte word of its (head, layer, K/V) rows holds hash(token, position) xor a salt of the
// word's place in the slab. The context's digest is the sum of the records; words that disagree are added to it.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "worker/engine/executor.hpp"

namespace penstock::worker {

struct FakeModel {
  KvGeometry geometry{.kv_heads = 1, .layers = 1, .block_tokens = 16, .head_dim = 4, .dtype = KvDtype::bf16};
  std::uint32_t blocks = 1024;
  ExecutorLimits limits{
      .step_tokens_max = 512, .sequences_max = 64, .sequence_tokens_max = 131072, .vocabulary_size = 32000};
  std::optional<TokenId> eos_token;         // drawn only as often as eos_per_million says
  std::uint32_t eos_per_million = 0;        // chance that a context's next token is eos_token
  std::optional<TokenId> not_finite_after;  // a context that ends in this token has NaN logits
  std::uint32_t steps_in_flight = 1;        // 2: the engine may start a step before the last one's tokens are known
  std::uint64_t fail_after_steps = 0;       // the next one fails, as on a broken device; 0: none
  std::uint64_t hang_after_steps = 0;       // the next one never ends; 0: none
  Duration step_time{};                     // a step takes step_time + tokens * token_time
  Duration token_time{};
};

/// Random numbers of a draw; greedy requests have none.
struct FakeDraw {
  std::uint64_t seed = 0;
  std::uint32_t choice = 0;
  std::uint32_t position = 0;
};

/// What the fake executor answers to `context`; for checkers that recompute a stream.
TokenId fake_next_token(const FakeModel& model, std::span<const TokenId> context,
                        std::optional<FakeDraw> draw = std::nullopt, std::span<const TokenId> suppressed = {});

class FakeExecutor final : public Executor {
 public:
  /// `wait` is called in collect() with the step's time, if that is not zero; absent: steps take no time.
  using Wait = std::function<void(Duration)>;
  explicit FakeExecutor(FakeModel model, Wait wait = {});

  const ExecutorLimits& limits() const override { return model_.limits; }
  KvPoolView kv_pool() override;
  void launch(const StepBatch& batch) override;
  Result<StepResult> collect() override;
  std::uint32_t steps_in_flight_max() const override { return model_.steps_in_flight; }

  const FakeModel& model() const { return model_; }
  /// The time that the last launched step takes; simulations add it to their clock.
  Duration last_step_time() const { return last_step_time_; }
  std::uint64_t steps() const { return steps_; }

 private:
  std::uint64_t* word(BlockIndex block, std::uint32_t row, std::uint32_t token);
  void write_token(const SequenceStep& sequence, std::uint32_t position, TokenId token);
  std::uint64_t read_token(std::span<const BlockIndex> blocks, std::uint32_t position);
  SequenceResult run(const SequenceStep& sequence);
  void take_drawn(SequenceStep& sequence) const;

  FakeModel model_;
  Wait wait_;
  std::uint32_t rows_;       // (head, layer, K/V) rows of a token
  std::uint32_t row_words_;  // 8-byte words of one token in one row
  std::vector<std::uint64_t> pool_;
  std::deque<StepResult> results_;
  std::vector<std::optional<TokenId>> drawn_;  // by row, in the last step
  Duration last_step_time_{};
  std::uint64_t steps_ = 0;
};

}  // namespace penstock::worker
