#include "bench/engine/shape_run.hpp"

#include <algorithm>
#include <charconv>

#include "common/time/clock.hpp"

namespace penstock::bench {
namespace {

using namespace worker;

struct Sequence {
  std::vector<TokenId> tokens;
  std::vector<BlockIndex> blocks;
  std::uint32_t computed = 0;
};

const protocol::SamplingParams& greedy() {
  static const protocol::SamplingParams params = [] {
    protocol::SamplingParams value;
    value.temperature = 0;
    return value;
  }();
  return params;
}

std::vector<Sequence> make_sequences(Executor& executor, const Shape& shape, std::uint32_t prompt) {
  const std::uint32_t block_tokens = executor.kv_pool().geometry.block_tokens;
  const std::uint32_t blocks = (tokens_of(shape) + block_tokens - 1) / block_tokens;
  const std::uint32_t vocabulary = executor.limits().vocabulary_size;
  std::vector<Sequence> sequences(sequences_of(shape));
  BlockIndex next = 0;
  for (std::uint32_t s = 0; s < sequences.size(); ++s) {
    // Long strides through the vocabulary, another for each sequence; the peer gets the same ones.
    for (std::uint32_t i = 0; i < prompt; ++i)
      sequences[s].tokens.push_back((1000 + 7919 * i + 104729 * s) % vocabulary);
    for (std::uint32_t i = 0; i < blocks; ++i) sequences[s].blocks.push_back(next++);
  }
  return sequences;
}

/// The next `count` tokens of a sequence; draws behind the last one.
SequenceStep step_of(const Sequence& sequence, std::uint32_t row, std::uint32_t count) {
  SequenceStep step;
  step.row = row;
  step.position = sequence.computed;
  step.tokens = std::span(sequence.tokens).subspan(sequence.computed, count);
  step.blocks = sequence.blocks;
  if (sequence.computed + count == sequence.tokens.size()) {
    SampleInput sample;
    sample.params = &greedy();
    sample.prompt = sequence.tokens;
    step.sample = sample;
  }
  return step;
}

Result<void> run_batch(Executor& executor, const StepBatch& batch, const std::vector<Sequence*>& taken) {
  executor.launch(batch);
  PENSTOCK_TRY(const StepResult result, executor.collect());
  for (std::size_t i = 0; i < taken.size(); ++i) {
    taken[i]->computed += static_cast<std::uint32_t>(batch.sequences[i].tokens.size());
    if (result.sequences[i].not_finite) return make_error(ErrorCode::internal, "logits are not finite");
    if (result.sequences[i].token) taken[i]->tokens.push_back(*result.sequences[i].token);
  }
  return {};
}

Result<void> prefill(Executor& executor, Sequence& sequence, std::uint32_t row) {
  const auto total = static_cast<std::uint32_t>(sequence.tokens.size());
  while (sequence.computed < total) {
    StepBatch batch;
    const std::uint32_t count = std::min(total - sequence.computed, executor.limits().step_tokens_max);
    batch.sequences.push_back(step_of(sequence, row, count));
    PENSTOCK_TRY_VOID(run_batch(executor, batch, {&sequence}));
  }
  return {};
}

Result<double> decode(Executor& executor, std::vector<Sequence>& sequences) {
  const SteadyClock clock;
  std::vector<Sequence*> taken;
  for (Sequence& sequence : sequences) taken.push_back(&sequence);
  std::vector<double> times;
  for (std::uint32_t i = 0; i < decode_steps; ++i) {
    StepBatch batch;
    for (std::uint32_t s = 0; s < sequences.size(); ++s) batch.sequences.push_back(step_of(sequences[s], s, 1));
    const TimePoint start = clock.now();
    PENSTOCK_TRY_VOID(run_batch(executor, batch, taken));
    times.push_back(std::chrono::duration<double>(clock.now() - start).count());
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

}  // namespace

std::string Shape::name() const {
  switch (kind) {
    case ShapeKind::decode:
      return "decode-" + std::to_string(size);
    case ShapeKind::prefill:
      return "prefill-" + std::to_string(size);
  }
  return {};
}

std::optional<Shape> parse_shape(std::string_view text) {
  Shape shape;
  for (const ShapeKind kind : {ShapeKind::decode, ShapeKind::prefill}) {
    const std::string_view prefix = kind == ShapeKind::decode ? "decode-" : "prefill-";
    if (!text.starts_with(prefix)) continue;
    shape.kind = kind;
    const char* end = text.data() + text.size();
    const auto [stop, failure] = std::from_chars(text.data() + prefix.size(), end, shape.size);
    if (failure != std::errc() || stop != end || shape.size == 0) return std::nullopt;
    return shape;
  }
  return std::nullopt;
}

std::uint32_t tokens_of(const Shape& shape) {
  return shape.kind == ShapeKind::decode ? decode_context + decode_steps + 1 : shape.size + 1;
}

std::uint32_t sequences_of(const Shape& shape) {
  return shape.kind == ShapeKind::decode ? shape.size : 1;
}

Result<double> run_shape(Executor& executor, const Shape& shape) {
  const bool is_decode = shape.kind == ShapeKind::decode;
  auto sequences = make_sequences(executor, shape, is_decode ? decode_context : shape.size);
  const SteadyClock clock;
  const TimePoint start = clock.now();
  for (std::uint32_t s = 0; s < sequences.size(); ++s) PENSTOCK_TRY_VOID(prefill(executor, sequences[s], s));
  if (!is_decode) return std::chrono::duration<double>(clock.now() - start).count();
  return decode(executor, sequences);
}

}  // namespace penstock::bench
