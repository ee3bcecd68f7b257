#include "worker/executor/fake/fake_executor.hpp"

#include <algorithm>
#include <future>

#include "common/base/check.hpp"

namespace penstock::worker {

namespace {

constexpr std::uint64_t token_key = 0x70656E73746F636Bull;
constexpr std::uint64_t disagreement_factor = 0xD6E8FEB86659FD93ull;

std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

std::uint64_t token_record(TokenId token, std::uint32_t position) {
  return mix(token_key ^ (std::uint64_t{token} << 32 | position));
}

std::uint64_t word_salt(std::uint32_t row, std::uint32_t word) {
  return mix(0x5A17ull + (std::uint64_t{row} << 32 | word)) & (row + word == 0 ? 0 : ~0ull);
}

// The next token after a context with this digest and length.
TokenId token_of(const FakeModel& model, std::uint64_t digest, std::size_t length, std::optional<FakeDraw> draw,
                 std::span<const TokenId> suppressed) {
  std::uint64_t hash = mix(digest + length * 0x9E3779B97F4A7C15ull);
  const bool ends = model.eos_token && mix(hash ^ 0xE05) % 1'000'000 < model.eos_per_million;
  if (draw) {
    hash = mix(hash ^ mix(draw->seed + 0x9E3779B97F4A7C15ull * (std::uint64_t{draw->choice} << 32 | draw->position)));
  }
  const std::uint32_t vocabulary = model.limits.vocabulary_size;
  auto token = static_cast<TokenId>(hash % vocabulary);
  if (ends) token = *model.eos_token;
  const auto is_barred = [&](TokenId id) {
    if (std::find(suppressed.begin(), suppressed.end(), id) != suppressed.end()) return true;
    return !ends && model.eos_token == id;
  };
  for (std::uint32_t tries = 0; tries < vocabulary && is_barred(token); ++tries) token = (token + 1) % vocabulary;
  return token;
}

std::optional<FakeDraw> draw_of(const SampleInput& input) {
  if (input.params->temperature == 0) return std::nullopt;
  return FakeDraw{input.params->seed, input.choice, input.position};
}

// Made-up numbers in the right shape: the chosen token first, then its neighbours.
protocol::PositionLogprobs logprobs_of(TokenId chosen, std::uint32_t top_count, std::uint32_t vocabulary) {
  protocol::PositionLogprobs out{.chosen = {chosen, -0.5f}, .rank = 1, .top = {}};
  for (std::uint32_t i = 0; i < std::min(top_count, vocabulary); ++i) {
    out.top.push_back({(chosen + i) % vocabulary, -0.5f - static_cast<float>(i)});
  }
  return out;
}

}  // namespace

TokenId fake_next_token(const FakeModel& model, std::span<const TokenId> context, std::optional<FakeDraw> draw,
                        std::span<const TokenId> suppressed) {
  std::uint64_t digest = 0;
  for (std::uint32_t i = 0; i < context.size(); ++i) digest += token_record(context[i], i);
  return token_of(model, digest, context.size(), draw, suppressed);
}

FakeExecutor::FakeExecutor(FakeModel model, Wait wait)
    : model_(model),
      wait_(std::move(wait)),
      rows_(model.geometry.kv_heads * model.geometry.layers * 2),
      row_words_(static_cast<std::uint32_t>(model.geometry.head_dim * kv_dtype_bytes(model.geometry.dtype) / 8)) {
  PENSTOCK_CHECK(row_words_ > 0 && model.geometry.head_dim * kv_dtype_bytes(model.geometry.dtype) % 8 == 0,
                 "a token's row must be a multiple of 8 bytes; head_dim", model.geometry.head_dim);
  PENSTOCK_CHECK(model.limits.vocabulary_size > 1);
  drawn_.resize(model.limits.sequences_max);
  pool_.resize(std::size_t{model.blocks} * model.geometry.block_bytes() / 8);
}

KvPoolView FakeExecutor::kv_pool() {
  return {reinterpret_cast<std::byte*>(pool_.data()), model_.blocks, model_.geometry};
}

std::uint64_t* FakeExecutor::word(BlockIndex block, std::uint32_t row, std::uint32_t token) {
  PENSTOCK_CHECK(block < model_.blocks, "block", block, "of", model_.blocks);
  const std::size_t block_words = model_.geometry.block_bytes() / 8;
  return pool_.data() + block * block_words + (std::size_t{row} * model_.geometry.block_tokens + token) * row_words_;
}

void FakeExecutor::write_token(const SequenceStep& sequence, std::uint32_t position, TokenId token) {
  const std::uint32_t block_tokens = model_.geometry.block_tokens;
  const std::uint64_t record = token_record(token, position);
  for (std::uint32_t row = 0; row < rows_; ++row) {
    std::uint64_t* words = word(sequence.blocks[position / block_tokens], row, position % block_tokens);
    for (std::uint32_t i = 0; i < row_words_; ++i) words[i] = record ^ word_salt(row, i);
  }
}

std::uint64_t FakeExecutor::read_token(std::span<const BlockIndex> blocks, std::uint32_t position) {
  const std::uint32_t block_tokens = model_.geometry.block_tokens;
  const BlockIndex block = blocks[position / block_tokens];
  const std::uint64_t record = *word(block, 0, position % block_tokens);
  std::uint64_t sum = record;
  for (std::uint32_t row = 0; row < rows_; ++row) {
    const std::uint64_t* words = word(block, row, position % block_tokens);
    for (std::uint32_t i = 0; i < row_words_; ++i) {
      sum += ((words[i] ^ word_salt(row, i)) - record) * disagreement_factor;
    }
  }
  return sum;
}

SequenceResult FakeExecutor::run(const SequenceStep& sequence) {
  const auto count = static_cast<std::uint32_t>(sequence.tokens.size());
  PENSTOCK_CHECK(count > 0 && sequence.row < model_.limits.sequences_max, "row", sequence.row);
  const std::size_t covered = sequence.blocks.size() * model_.geometry.block_tokens;
  PENSTOCK_CHECK(sequence.position + count <= covered, "position", sequence.position, "tokens", count);
  for (std::uint32_t i = 0; i < count; ++i) {
    PENSTOCK_CHECK(sequence.tokens[i] < model_.limits.vocabulary_size, "token", sequence.tokens[i]);
    write_token(sequence, sequence.position + i, sequence.tokens[i]);
  }
  SequenceResult result;
  if (sequence.prompt_logprobs) {
    for (std::uint32_t i = 1; i <= count; ++i) {
      if (i == count && !sequence.next_prompt_token) break;
      const TokenId next = i < count ? sequence.tokens[i] : *sequence.next_prompt_token;
      result.prompt_logprobs.push_back(logprobs_of(next, *sequence.prompt_logprobs, model_.limits.vocabulary_size));
    }
  }
  if (!sequence.sample) return result;
  if (model_.not_finite_after == sequence.tokens.back()) {
    result.not_finite = true;
    return result;
  }
  const std::uint32_t length = sequence.position + count;
  std::uint64_t digest = 0;
  for (std::uint32_t i = 0; i < length; ++i) digest += read_token(sequence.blocks, i);
  const SampleInput& input = *sequence.sample;
  result.token = token_of(model_, digest, length, draw_of(input), input.suppressed);
  if (const auto top = input.params->logprobs) {
    result.logprobs = logprobs_of(*result.token, *top, model_.limits.vocabulary_size);
  }
  return result;
}

/// A row whose last logits were not finite has no token; what comes of it is ignored.
void FakeExecutor::take_drawn(SequenceStep& sequence) const {
  PENSTOCK_CHECK(!results_.empty() && sequence.tokens.size() == 1 && sequence.sample, "row", sequence.row);
  static constexpr TokenId none = 0;
  sequence.tokens = std::span(drawn_[sequence.row] ? &*drawn_[sequence.row] : &none, 1);
}

void FakeExecutor::launch(const StepBatch& batch) {
  PENSTOCK_CHECK(results_.size() < steps_in_flight_max());
  PENSTOCK_CHECK(batch.sequences.size() <= model_.limits.sequences_max, "sequences", batch.sequences.size());
  for (const BlockCopy& copy : batch.copies) {
    std::copy_n(word(copy.from, 0, 0), model_.geometry.block_bytes() / 8, word(copy.to, 0, 0));
  }
  StepResult result;
  std::size_t tokens = 0;
  for (SequenceStep sequence : batch.sequences) {
    PENSTOCK_CHECK(sequence.follows || results_.empty(), "row", sequence.row, "does not follow the step under way");
    if (sequence.follows) take_drawn(sequence);
    tokens += sequence.tokens.size();
    result.sequences.push_back(run(sequence));
  }
  for (std::size_t i = 0; i < batch.sequences.size(); ++i) {
    drawn_[batch.sequences[i].row] = result.sequences[i].token;
  }
  PENSTOCK_CHECK(tokens <= model_.limits.step_tokens_max, "tokens", tokens);
  last_step_time_ = model_.step_time + model_.token_time * static_cast<Duration::rep>(tokens);
  ++steps_;
  results_.push_back(std::move(result));
}

Result<StepResult> FakeExecutor::collect() {
  PENSTOCK_CHECK(!results_.empty());
  if (wait_ && last_step_time_ > Duration::zero()) wait_(last_step_time_);
  const std::uint64_t ended = steps_ - results_.size();
  if (model_.hang_after_steps > 0 && ended >= model_.hang_after_steps) std::promise<void>().get_future().wait();
  if (model_.fail_after_steps > 0 && ended >= model_.fail_after_steps) {
    return make_error(ErrorCode::internal, "the fake device has failed");
  }
  StepResult result = std::move(results_.front());
  results_.pop_front();
  return result;
}

}  // namespace penstock::worker
