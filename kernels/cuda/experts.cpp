#include "kernels/cuda/experts.hpp"

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

#include "kernels/cuda/experts_launch.hpp"

namespace penstock::kernels::cuda {
namespace {

constexpr std::uint64_t part_alignment = 256;

bool is_aligned(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0;
}

Result<void> check_shape(std::string_view kernel, const ExpertShape& shape, std::uint32_t tokens) {
  if (shape.experts == 0 || shape.experts > experts_max) return bad_shape(kernel, "experts must be 1 to 256");
  if (shape.chosen == 0 || shape.chosen > chosen_experts_max || shape.chosen > shape.experts) {
    return bad_shape(kernel, "chosen must be 1 to 16, and no more than experts");
  }
  if (shape.hidden == 0 || shape.hidden % 8 != 0 || shape.hidden > 65536) {
    return bad_shape(kernel, "hidden must be a multiple of 8, at most 65536");
  }
  if (tokens > 1u << 20) return bad_shape(kernel, "tokens must be at most 2^20");
  return {};
}

Result<void> check_routing(std::string_view kernel, const ExpertShape& shape, const ExpertStep& s) {
  PENSTOCK_TRY_VOID(check_shape(kernel, shape, s.tokens));
  if (s.x == nullptr || s.weights.router == nullptr || s.choices.experts == nullptr) {
    return bad_shape(kernel, "x, the router's weights and choices are needed");
  }
  if (!is_aligned(s.x) || !is_aligned(s.weights.router)) {
    return bad_shape(kernel, "x and the router's weights must be aligned to 16 bytes");
  }
  if ((s.norm_squares != nullptr) != (s.norm_parts > 0)) return bad_shape(kernel, "norm_squares come with norm_parts");
  return {};
}

Result<void> check_step(std::string_view kernel, const ExpertShape& shape, const ExpertStep& s) {
  PENSTOCK_TRY_VOID(check_routing(kernel, shape, s));
  if (shape.ffn == 0 || shape.ffn % 8 != 0 || shape.ffn > 1u << 20) {
    return bad_shape(kernel, "ffn must be a multiple of 8, at most 2^20");
  }
  if (s.weights.gate_up == nullptr || s.weights.down == nullptr || s.activated == nullptr || s.y == nullptr) {
    return bad_shape(kernel, "weights, activated and y are needed");
  }
  if (!is_aligned(s.weights.gate_up) || !is_aligned(s.weights.down) || !is_aligned(s.activated)) {
    return bad_shape(kernel, "weights and activated must be aligned to 16 bytes");
  }
  return {};
}

ExpertSizes sizes_of(const ExpertShape& shape, std::uint32_t tokens) {
  const auto size = [](std::uint32_t value) { return static_cast<std::int32_t>(value); };
  return {size(shape.experts), size(shape.chosen), size(shape.hidden), size(shape.ffn), size(tokens)};
}

ExpertArguments arguments_of(const ExpertShape& shape, const ExpertStep& s) {
  ExpertArguments a{};
  a.sizes = sizes_of(shape, s.tokens);
  a.router = s.weights.router;
  a.gate_up = s.weights.gate_up;
  a.down = s.weights.down;
  a.x = s.x;
  a.norm_squares = s.norm_squares;
  a.norm_parts = static_cast<std::int32_t>(s.norm_parts);
  a.norm_epsilon = s.norm_epsilon;
  a.scales_all = s.scaling == ExpertScaling::all;
  a.arrived = s.choices.arrived;
  a.experts = s.choices.experts;
  a.choice_weights = s.choices.weights;
  a.scales = s.choices.scales;
  a.logits = s.choices.logits;
  a.first = s.choices.first;
  a.order = s.choices.order;
  a.activated = s.activated;
  a.outputs = s.outputs;
  a.y = s.y;
  a.gain = s.gain;
  a.gained = s.gained;
  a.squares = s.squares;
  return a;
}

}  // namespace

std::uint64_t choices_bytes(const ExpertShape& shape, std::uint32_t tokens) {
  const ExpertChoices end = choices_in(nullptr, shape, tokens);
  return reinterpret_cast<std::uintptr_t>(end.order) +
         (std::uint64_t{tokens} * shape.chosen + 1) * sizeof(std::int32_t);
}

ExpertChoices choices_in(void* memory, const ExpertShape& shape, std::uint32_t tokens) {
  std::uintptr_t next = reinterpret_cast<std::uintptr_t>(memory);
  const auto take = [&]<class T>(T*& part, std::uint64_t count) {
    part = reinterpret_cast<T*>(next);
    next += (count * sizeof(T) + part_alignment - 1) / part_alignment * part_alignment;
  };
  const std::uint64_t choices = std::uint64_t{tokens} * shape.chosen;
  ExpertChoices parts;
  take(parts.arrived, 2);
  take(parts.experts, choices);
  take(parts.weights, choices);
  take(parts.scales, tokens);
  take(parts.logits, std::uint64_t{std::min(tokens, few_expert_tokens)} * shape.experts);
  take(parts.first, shape.experts + 1);
  take(parts.order, choices);
  return parts;
}

std::uint32_t few_expert_squares(std::uint32_t hidden) {
  return (hidden + 15) / 16;
}

Result<void> route_experts(const ExpertShape& shape, const ExpertStep& s, Start start, Stream stream) {
  constexpr std::string_view name = "route_experts";
  PENSTOCK_TRY_VOID(check_routing(name, shape, s));
  if (s.tokens == 0) return {};
  return check_launch(start_routing(arguments_of(shape, s), start == Start::overlapped, stream), name);
}

Result<void> run_few_experts(const ExpertShape& shape, const ExpertStep& step, Start start, Stream stream) {
  constexpr std::string_view name = "run_few_experts";
  PENSTOCK_TRY_VOID(check_step(name, shape, step));
  if (step.tokens == 0 || step.tokens > few_expert_tokens) return bad_shape(name, "tokens must be 1 to 64");
  const bool has_gain = step.gain != nullptr;
  if (has_gain != (step.gained != nullptr) || has_gain != (step.squares != nullptr)) {
    return bad_shape(name, "gain, gained and squares come together");
  }
  return check_launch(start_few(arguments_of(shape, step), start == Start::overlapped, stream), name);
}

Result<void> run_many_experts(const ExpertShape& shape, const ExpertStep& step, Start start, Stream stream) {
  constexpr std::string_view name = "run_many_experts";
  PENSTOCK_TRY_VOID(check_step(name, shape, step));
  if (step.outputs == nullptr || !is_aligned(step.outputs) || !is_aligned(step.y)) {
    return bad_shape(name, "outputs and y are needed, aligned to 16 bytes");
  }
  if (step.gain != nullptr) return bad_shape(name, "a gain is for few tokens only");
  if (step.tokens == 0) return {};
  const ExpertArguments arguments = arguments_of(shape, step);
  const bool overlapped = start == Start::overlapped;
  PENSTOCK_TRY_VOID(route_experts(shape, step, start, stream));
  PENSTOCK_TRY_VOID(check_launch(start_order(arguments, overlapped, stream), name));
  PENSTOCK_TRY_VOID(check_launch(start_many_gate_up(arguments, overlapped, stream), name));
  PENSTOCK_TRY_VOID(check_launch(start_many_down(arguments, overlapped, stream), name));
  return check_launch(start_combine(arguments, overlapped, stream), name);
}

}  // namespace penstock::kernels::cuda
