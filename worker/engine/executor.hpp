// What the engine needs from a backend: run one step over a batch of sequences and sample. The interface belongs to the
// engine; executor/cpu, executor/cuda and executor/fake implement it and pass one conformance suite.
// Thread: all calls from the engine thread. Bounds: everything is allocated at construction from ExecutorLimits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/base/result.hpp"
#include "common/base/types.hpp"
#include "common/protocol/messages.hpp"
#include "common/time/clock.hpp"

namespace penstock::worker {

enum class KvDtype : std::uint8_t { bf16, f16, f32 };
std::size_t kv_dtype_bytes(KvDtype dtype);
std::string_view to_string(KvDtype dtype);

/// Which two dimensions of a key its position turns together: keys lie in the slab as the executor turns them.
enum class KeyOrder : std::uint8_t {
  halves,  // i and head_dim / 2 + i
  pairs,   // 2 i and 2 i + 1
};

/// Slab order of one block of one KV group: [kv_head][layer][K/V][token][dim], contiguous; blocks follow each other.
struct KvGeometry {
  std::uint32_t kv_heads = 0;
  std::uint32_t layers = 0;
  std::uint32_t block_tokens = 16;
  std::uint32_t head_dim = 0;
  KvDtype dtype = KvDtype::bf16;
  KeyOrder key_order = KeyOrder::halves;

  std::size_t head_bytes() const { return std::size_t{layers} * 2 * block_tokens * head_dim * kv_dtype_bytes(dtype); }
  std::size_t block_bytes() const { return kv_heads * head_bytes(); }
};

/// Where a GPU has the pool: at the beginning of an allocation of GPU number `device`, with kv_tail_bytes behind the
/// last block, which are the KV transport's.
struct DeviceMemoryView {
  void* base = nullptr;
  int device = -1;
};
constexpr std::size_t kv_tail_bytes = 256;

/// The pool as memory, for the KV transport: block b is at base + b * geometry.block_bytes().
struct KvPoolView {
  std::byte* base = nullptr;  // null: not memory that a processor reads
  std::uint32_t blocks = 0;
  KvGeometry geometry;
  int file = -1;            // of the memory, from its first byte on, for peers to map; -1: private memory
  DeviceMemoryView device;  // without a base: no GPU has it, or several do
};

struct ExecutorLimits {
  std::uint32_t step_tokens_max = 0;      // sum over a batch
  std::uint32_t sequences_max = 0;        // rows
  std::uint32_t sequence_tokens_max = 0;  // context length
  std::uint32_t vocabulary_size = 0;
};

/// How the next token of a row is drawn. Spans live as long as those of the step.
struct SampleInput {
  const protocol::SamplingParams* params = nullptr;
  std::uint32_t choice = 0;
  std::uint32_t position = 0;           // output index of the token to draw; with seed and choice the random counter
  std::span<const TokenId> prompt;      // for the repetition penalty
  std::span<const TokenId> output;      // tokens so far, `position` of them; all but the last if a row follows
  std::span<const TokenId> suppressed;  // ids that may not be drawn now (stop ids before tokens_min)
};

/// A run of tokens of one sequence: prefill chunk, decode token, resume after preemption are all this. Spans live until
/// collect() returns, but of a step that another one follows only until launch() does.
struct SequenceStep {
  std::uint32_t row = 0;            // permanent while the sequence is active, < sequences_max
  std::uint32_t position = 0;       // absolute position of tokens[0]
  bool follows = false;             // its one token is what the step under way draws for this row, `tokens` holds any
  std::span<const TokenId> tokens;  // at least one
  std::span<const BlockIndex> blocks;            // block table; covers [0, position + tokens.size())
  std::optional<SampleInput> sample;             // draw after the last token; absent for a chunk that is not the last
  std::optional<std::uint32_t> prompt_logprobs;  // logprobs of tokens[i] given what precedes it: top count
  std::optional<TokenId> next_prompt_token;      // the prompt token after this chunk, to score it too
};

struct BlockCopy {  // copy-on-write of a shared block, before the step
  BlockIndex from = 0;
  BlockIndex to = 0;
};

struct StepBatch {
  std::vector<BlockCopy> copies;
  std::vector<SequenceStep> sequences;  // total tokens <= step_tokens_max
};

struct SequenceResult {
  std::optional<TokenId> token;
  std::optional<protocol::PositionLogprobs> logprobs;       // if params->logprobs
  std::vector<protocol::PositionLogprobs> prompt_logprobs;  // token i+1 given tokens up to i, where known
  bool not_finite = false;  // the logits held NaN or infinity: the request must fail, no token is given
};

struct StepResult {
  std::vector<SequenceResult> sequences;  // same order as the batch
  std::optional<Duration> device_time;    // that a GPU was at work on it, where that is known
};

class Executor {
 public:
  virtual ~Executor() = default;
  virtual const ExecutorLimits& limits() const = 0;
  virtual KvPoolView kv_pool() = 0;
  /// Starts a step. At most steps_in_flight_max() may be started and not collected. A second one has only rows that
  /// follow, each drawn in the one under way, which computes one token a row; no logits are biased or penalised in it.
  virtual void launch(const StepBatch& batch) = 0;
  /// Waits for the oldest started step. An error means that the backend is broken: the process must end.
  virtual Result<StepResult> collect() = 0;
  virtual std::uint32_t steps_in_flight_max() const { return 1; }
  /// What it is at, for a log when a step takes too long: of several ranks, what each came to last. From any thread.
  virtual std::string state() const { return {}; }
};

}  // namespace penstock::worker
