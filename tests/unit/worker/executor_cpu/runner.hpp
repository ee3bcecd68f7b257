// Drives an Executor by hand: blocks in order, chunks of a given size, greedy decoding. For tests only.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "worker/engine/executor.hpp"
#include "worker/executor/cpu/cpu_executor.hpp"

namespace penstock::worker::test {

/// One sequence with a block table of its own.
struct Sequence {
  std::vector<TokenId> prompt;
  std::vector<TokenId> output;
  std::vector<BlockIndex> blocks;
  std::vector<protocol::PositionLogprobs> prompt_logprobs;
  std::uint32_t computed = 0;  // tokens whose KV is in the pool
  bool not_finite = false;

  std::vector<TokenId> tokens() const;
};

struct RunOptions {
  std::uint32_t chunk = 64;         // prompt tokens of one sequence in one step
  std::uint32_t output_tokens = 0;  // greedy tokens to draw for each
  bool score_prompt = false;
  bool one_by_one = false;  // else all sequences share each step
};

/// Gives each sequence blocks of its own for `tokens` tokens.
void assign_blocks(std::vector<Sequence>& sequences, std::uint32_t tokens, std::uint32_t block_tokens);

/// Runs all sequences to the end of their output. Fails the current test on an executor error.
void run_sequences(Executor& executor, std::vector<Sequence>& sequences, const RunOptions& options);

}  // namespace penstock::worker::test
