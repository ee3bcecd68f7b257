// Layers of experts (mixture of experts): a router chooses a few experts for each token, whose outputs are added with
// weights. For up to 64 tokens weights are read as the skinny product reads them, bound by that; for more, tokens are
// sorted by expert and multiplied on the matrix units. Nothing of it needs the processor between two kernels. Any
// thread; queues work on the stream.
#pragma once

#include <cstdint>

#include "common/base/result.hpp"
#include "kernels/cuda/expert_limits.hpp"
#include "kernels/cuda/stream.hpp"

namespace penstock::kernels::cuda {

struct ExpertShape {
  std::uint32_t experts = 0;  // 1 to 256
  std::uint32_t chosen = 0;   // for each token: 1 to 16
  std::uint32_t hidden = 0;   // a multiple of 8
  std::uint32_t ffn = 0;      // of one expert; a multiple of 8
};

struct ExpertWeights {
  const Bf16* router = nullptr;   // [experts][hidden]
  const Bf16* gate_up = nullptr;  // [experts][2 * ffn][hidden], an expert's gate rows first
  const Bf16* down = nullptr;     // [experts][hidden][ffn]
};

/// What a router decided, in GPU memory, and what kernels leave for each other. A choice is token * chosen + rank,
/// where rank 0 is the token's likeliest expert.
struct ExpertChoices {
  std::uint32_t* arrived = nullptr;  // [2], zeros before the first use
  std::int32_t* experts = nullptr;   // [tokens][chosen]
  float* weights = nullptr;          // [tokens][chosen]
  float* scales = nullptr;           // [tokens], what x is still to be multiplied by
  float* logits = nullptr;           // of few tokens: [tokens][experts]
  std::int32_t* first = nullptr;     // of many: [experts + 1], where an expert's choices begin in `order`
  std::int32_t* order = nullptr;     // of many: choices by expert, then token
};
/// Bytes for the choices of up to `tokens` tokens, and where each part lies in `memory`.
std::uint64_t choices_bytes(const ExpertShape& shape, std::uint32_t tokens);
ExpertChoices choices_in(void* memory, const ExpertShape& shape, std::uint32_t tokens);

enum class ExpertScaling : std::uint8_t {
  chosen,  // softmax over the chosen experts: weights add up to 1
  all,     // softmax over all experts, of which the chosen ones keep theirs
};

/// y = y + the outputs of each token's experts for x, times their weights. The experts are those with the largest
/// logits x router^T, of equal ones the lower number; NaN comes last.
struct ExpertStep {
  ExpertWeights weights;
  ExpertScaling scaling = ExpertScaling::chosen;
  const Bf16* x = nullptr;  // [tokens][hidden], dense
  // If x has had its norm's gain but not been divided by its root mean square: as skinny_gemm() left them.
  const float* norm_squares = nullptr;  // [tokens][norm_parts]
  std::uint32_t norm_parts = 0;
  float norm_epsilon = 0;
  std::uint32_t tokens = 0;
  Bf16* y = nullptr;  // [tokens][hidden], dense: the residual path
  // For a norm that ends in the next product, as skinny_gemm() has them; of few tokens only, all or none. They may be
  // x and norm_squares.
  const Bf16* gain = nullptr;  // [hidden]
  Bf16* gained = nullptr;      // [tokens][hidden]
  float* squares = nullptr;    // [tokens][few_expert_squares(hidden)]
  // Work space.
  ExpertChoices choices;
  Bf16* activated = nullptr;  // [tokens * chosen][ffn]
  Bf16* outputs = nullptr;    // [tokens * chosen][hidden], of run_many_experts()
};
std::uint32_t few_expert_squares(std::uint32_t hidden);

/// Only the choices, of any number of tokens. Errors of all of these: invalid_argument for sizes or alignment, by name.
Result<void> route_experts(const ExpertShape& shape, const ExpertStep& step, Start start, Stream stream);
/// All of it for up to few_expert_tokens, in one kernel whose blocks wait for each other: it needs the whole device,
/// but for kernels that end by themselves. A token's bits depend on itself only: its outputs are added in the order of
/// its ranks.
Result<void> run_few_experts(const ExpertShape& shape, const ExpertStep& step, Start start, Stream stream);
/// For any number of tokens; outputs are rounded to bf16 before they are added. Hopper only.
Result<void> run_many_experts(const ExpertShape& shape, const ExpertStep& step, Start start, Stream stream);

}  // namespace penstock::kernels::cuda
