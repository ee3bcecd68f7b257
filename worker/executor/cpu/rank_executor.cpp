#include "worker/executor/cpu/rank_executor.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

namespace penstock::worker {
namespace {

using kernels::cpu::ActivationForm;
using kernels::cpu::Activations;
using kernels::cpu::AttentionArgs;
using kernels::cpu::IndexRange;
using kernels::cpu::MatmulOutput;
using kernels::cpu::PackedMatrix;
using kernels::cpu::QkNorm;

constexpr std::size_t logits_bytes_max = 64u << 20;
constexpr std::size_t partial_slots_max = 512;  // 32 decode rows of 8,192 tokens; rows beyond are not cut

ActivationForm combine(std::optional<ActivationForm> a, ActivationForm b) {
  return !a || *a == b ? b : ActivationForm::both;
}

/// The form that serves every matrix of the model which `pick` chooses.
template <class Pick>
ActivationForm common_form(const RankWeights& weights, Pick pick) {
  std::optional<ActivationForm> form;
  for (const LayerWeights& layer : weights.layers) {
    for (const PackedMatrix* matrix : pick(layer)) {
      if (matrix->rows() > 0) form = combine(form, matrix->activation_form());
    }
  }
  return form.value_or(ActivationForm::f32);
}

const float* or_null(const std::vector<float>& values) {
  return values.empty() ? nullptr : values.data();
}

bool all_finite(const float* values, std::size_t count) {
  std::uint32_t bad = 0;
  for (std::size_t i = 0; i < count; ++i) {
    std::uint32_t bits;
    std::memcpy(&bits, values + i, sizeof bits);
    bad |= static_cast<std::uint32_t>((bits & 0x7f800000u) == 0x7f800000u);
  }
  return bad == 0;
}

}  // namespace

RankExecutor::RankExecutor(const RankContext& context, Collective* collective, kernels::cpu::ThreadPoolOptions threads)
    : context_(context),
      collective_(collective),
      rank_(collective == nullptr ? 0 : collective->rank()),
      ranks_(collective == nullptr ? 1 : collective->ranks()),
      weights_(context.weights->ranks[rank_]),
      pool_(std::move(threads)) {
  allocate();
}

void RankExecutor::allocate() {
  const ModelSpec& spec = *context_.spec;
  const std::size_t rows = context_.step_tokens_max;
  const std::size_t heads = spec.heads / ranks_;
  const std::size_t kv_heads = spec.kv_heads / ranks_;
  x_.resize(rows * spec.hidden);
  if (ranks_ > 1) share_.resize(rows * spec.hidden / ranks_);
  qkv_.resize(rows * (heads + 2 * kv_heads) * spec.head_dim);

  partial_slots_ = partial_slots_max;
  partials_.resize(partial_slots_ *
                   kernels::cpu::attention_slot_floats(static_cast<std::uint32_t>(heads), spec.head_dim));

  const auto normed_form = common_form(weights_, [](const LayerWeights& layer) {
    std::vector<const PackedMatrix*> readers{&layer.gate_up, &layer.gate, &layer.up, &layer.router};
    for (const QkvPart& part : layer.qkv) readers.push_back(&part.matrix);
    for (const ExpertWeights& expert : layer.experts) readers.push_back(&expert.gate_up);
    return readers;
  });
  normed_ = Activations(rows, spec.hidden, normed_form);
  using Readers = std::vector<const PackedMatrix*>;
  const auto attended_form = common_form(weights_, [](const LayerWeights& layer) { return Readers{&layer.output}; });
  const bool whole_blocks = attended_form == ActivationForm::f32 || spec.head_dim % Activations::block == 0;
  make_input(attended_, rows, std::size_t{spec.heads} * spec.head_dim, attended_form, whole_blocks);
  allocate_ffn();

  const std::size_t row_bytes = std::size_t{spec.vocabulary} * sizeof(float);
  logits_rows_max_ = std::clamp<std::size_t>(logits_bytes_max / row_bytes, 1, context_.sequences_max);
  last_.resize(logits_rows_max_ * spec.hidden);
  const PackedMatrix& matrix = weights_.head.rows() > 0 ? weights_.head : context_.weights->embedding;
  head_input_ = Activations(logits_rows_max_, spec.hidden, matrix.activation_form());
  logits_.resize(logits_rows_max_ * spec.vocabulary);
  if (ranks_ > 1) logits_share_.resize(logits_rows_max_ * matrix.rows());
  if (rank_ > 0) return;
  for (std::uint32_t member = 0; member < pool_.size(); ++member) samplers_.emplace_back(spec.vocabulary);
}

void RankExecutor::allocate_ffn() {
  const ModelSpec& spec = *context_.spec;
  const std::size_t rows = context_.step_tokens_max;
  const auto form = common_form(weights_, [](const LayerWeights& layer) {
    std::vector<const PackedMatrix*> readers{&layer.down};
    for (const ExpertWeights& expert : layer.experts) readers.push_back(&expert.down);
    return readers;
  });
  if (spec.experts) {
    make_input(activated_, rows * spec.experts->per_token, spec.experts->ffn, form, true);
    router_logits_.resize(rows * spec.experts->count);
    groups_ = ExpertGroups(spec.experts->count, spec.experts->per_token, rows);
    return;
  }
  make_input(activated_, rows, spec.ffn, form, true);
  for (const LayerWeights& layer : weights_.layers) {
    if (layer.gate.rows() > 0) gate_.resize(rows * spec.ffn / ranks_);
  }
  up_.resize(gate_.size());
}

void RankExecutor::make_input(SharedInput& buffer, std::size_t rows, std::size_t columns, ActivationForm form,
                              bool can_be_direct) {
  buffer.input = Activations(rows, columns, form);
  buffer.is_direct = ranks_ == 1 && can_be_direct;
  if (buffer.is_direct) return;
  buffer.local = Activations(rows, columns / ranks_, ActivationForm::f32);
  if (ranks_ > 1 && form == ActivationForm::int16) buffer.whole.resize(rows * columns);
}

std::optional<Error> RankExecutor::run(StepPlan& plan) {
  pool_.run([&](Member& member) { forward(member, plan); });
  return error_;
}

void RankExecutor::forward(Member& member, StepPlan& plan) {
  const std::size_t m = plan.rows();
  const std::size_t hidden = context_.spec->hidden;
  context_.kernels->embed(context_.weights->embedding, plan.tokens, x_.data(), hidden, member.slice());
  member.barrier();
  for (std::uint32_t layer = 0; layer < context_.spec->layers; ++layer) {
    context_.kernels->rms_norm(x_.data(), hidden, m, weights_.layers[layer].attention_norm.data(),
                               context_.spec->norm_epsilon, normed_, member.slice());
    member.barrier();
    attention(member, plan, layer);
    context_.kernels->rms_norm(x_.data(), hidden, m, weights_.layers[layer].ffn_norm.data(),
                               context_.spec->norm_epsilon, normed_, member.slice());
    member.barrier();
    if (context_.spec->experts) {
      experts(member, plan, layer);
    } else {
      ffn(member, plan, layer);
    }
  }
  head(member, plan);
}

void RankExecutor::attention(Member& member, const StepPlan& plan, std::uint32_t layer) {
  const ModelSpec& spec = *context_.spec;
  const kernels::cpu::Kernels& kernels = *context_.kernels;
  const LayerWeights& weights = weights_.layers[layer];
  const std::size_t m = plan.rows();
  AttentionArgs args;
  args.qkv.data = qkv_.data();
  args.qkv.heads = spec.heads / ranks_;
  args.qkv.kv_heads = spec.kv_heads / ranks_;
  args.qkv.k_offset = std::size_t{args.qkv.heads} * spec.head_dim;
  args.qkv.v_offset = args.qkv.k_offset + std::size_t{args.qkv.kv_heads} * spec.head_dim;
  args.qkv.stride = args.qkv.v_offset + std::size_t{args.qkv.kv_heads} * spec.head_dim;
  args.kv = context_.kv;
  args.layer = layer;
  args.sequences = plan.sequences;
  args.scale = 1.0f / std::sqrt(static_cast<float>(spec.head_dim));
  args.window = spec.windows.empty() ? 0 : spec.windows[layer];
  args.sinks = or_null(weights.sinks);
  args.partials = partials_.data();
  args.partial_slots = partial_slots_;

  for (const QkvPart& part : weights.qkv) {
    MatmulOutput out;
    out.y = qkv_.data() + part.first_column;
    out.stride = args.qkv.stride;
    out.bias = weights.qkv_bias.empty() ? nullptr : weights.qkv_bias.data() + part.first_column;
    kernels.matmul(part.matrix, normed_, m, out, member.slice());
  }
  member.barrier();
  const QkNorm norm{or_null(weights.q_norm), or_null(weights.k_norm), spec.norm_epsilon};
  kernels.rope_and_store(args, context_.rope, norm, member.slice());
  member.barrier();
  kernels.attention(args, attended_.target(), member.slice());
  if (kernels.attention_is_split(args)) {
    member.barrier();
    kernels.merge_attention(args, attended_.target(), member.slice());
  }
  gather_input(member, attended_, m);
  project(member, weights.output, attended_.input, m, or_null(weights.output_bias));
}

void RankExecutor::ffn(Member& member, const StepPlan& plan, std::uint32_t layer) {
  const kernels::cpu::Kernels& kernels = *context_.kernels;
  const LayerWeights& weights = weights_.layers[layer];
  const std::size_t m = plan.rows();
  if (weights.gate_up.rows() > 0) {
    kernels.matmul_swiglu(weights.gate_up, normed_, m, activated_.target(), member.slice());
  } else {
    const std::size_t columns = context_.spec->ffn / ranks_;
    MatmulOutput out;
    out.stride = columns;
    out.y = gate_.data();
    kernels.matmul(weights.gate, normed_, m, out, member.slice());
    out.y = up_.data();
    kernels.matmul(weights.up, normed_, m, out, member.slice());
    member.barrier();
    kernels.swiglu(gate_.data(), up_.data(), columns, m, activated_.target(), member.slice());
  }
  gather_input(member, activated_, m);
  project(member, weights.down, activated_.input, m, nullptr);
}

void RankExecutor::route(Member& member, std::size_t m, std::uint32_t layer) {
  const ExpertSpec& spec = *context_.spec->experts;
  MatmulOutput logits;
  logits.y = router_logits_.data();
  logits.stride = spec.count;
  logits.bias = or_null(weights_.layers[layer].router_bias);
  context_.kernels->matmul(weights_.layers[layer].router, normed_, m, logits, member.slice());
  member.barrier();
  context_.kernels->route(logits.y, m, {spec.count, spec.per_token, spec.renormalises}, groups_.chosen(),
                          groups_.weights(), member.slice());
  const std::size_t hidden = context_.spec->hidden;
  const std::size_t columns = hidden / ranks_;
  const IndexRange mine = kernels::cpu::split(ranks_ == 1 ? 0 : m, member.slice());
  for (std::size_t row = mine.begin; row < mine.end; ++row) {
    std::copy_n(x_.data() + row * hidden + rank_ * columns, columns, share_.data() + row * columns);
  }
  member.barrier();
  if (member.index() == 0) groups_.group(m);
  member.barrier();
}

/// Experts add to the residual path in their order, each with all rows that chose it. No barrier lies between two
/// experts: a member writes the same columns for each.
void RankExecutor::experts(Member& member, const StepPlan& plan, std::uint32_t layer) {
  const ExpertSpec& spec = *context_.spec->experts;
  const kernels::cpu::Kernels& kernels = *context_.kernels;
  const LayerWeights& weights = weights_.layers[layer];
  const std::size_t m = plan.rows();
  const auto options_of = [&](const ExpertWeights& expert) {
    return kernels::cpu::ExpertOptions{or_null(expert.gate_up_bias), or_null(expert.down_bias), spec.activation};
  };
  route(member, m, layer);
  for (std::uint32_t e = 0; e < spec.count; ++e) {
    const kernels::cpu::ExpertRows rows = groups_.rows_of(e);
    if (rows.count == 0) continue;
    // Narrow experts divide badly; turned, the larger parts fall to all members.
    const kernels::cpu::Slice turned{(member.index() + e) % member.count(), member.count()};
    kernels.expert_gate_up(weights.experts[e].gate_up, normed_, rows, options_of(weights.experts[e]),
                           activated_.target(), turned);
  }
  gather_input(member, activated_, m * spec.per_token);
  float* y = ranks_ == 1 ? x_.data() : share_.data();
  for (std::uint32_t e = 0; e < spec.count; ++e) {
    const kernels::cpu::ExpertRows rows = groups_.rows_of(e);
    if (rows.count == 0) continue;
    kernels.expert_down(weights.experts[e].down, activated_.input, rows, options_of(weights.experts[e]), y,
                        context_.spec->hidden / ranks_, member.slice());
  }
  gather_residual(member, m);
}

void RankExecutor::project(Member& member, const PackedMatrix& matrix, const Activations& input, std::size_t m,
                           const float* bias) {
  const std::size_t hidden = context_.spec->hidden;
  const std::size_t columns = hidden / ranks_;
  MatmulOutput out;
  out.y = ranks_ == 1 ? x_.data() : share_.data();
  out.stride = columns;
  out.bias = bias;
  out.residual = x_.data() + rank_ * columns;
  out.residual_stride = hidden;
  context_.kernels->matmul(matrix, input, m, out, member.slice());
  gather_residual(member, m);
}

void RankExecutor::gather_residual(Member& member, std::size_t m) {
  if (ranks_ == 1) {
    member.barrier();
    return;
  }
  const std::size_t hidden = context_.spec->hidden;
  const std::size_t columns = hidden / ranks_;
  gather(member, {share_.data(), columns, x_.data(), hidden, m, columns, rank_ * columns});
}

void RankExecutor::gather_input(Member& member, SharedInput& buffer, std::size_t m) {
  if (buffer.is_direct) {
    member.barrier();
    return;
  }
  const std::size_t columns = buffer.local.columns();
  const float* whole = buffer.local.f32(0);
  std::size_t stride = buffer.local.f32_stride();
  if (ranks_ > 1) {
    float* into = buffer.whole.empty() ? buffer.input.f32(0) : buffer.whole.data();
    const std::size_t into_stride = buffer.whole.empty() ? buffer.input.f32_stride() : buffer.input.columns();
    gather(member, {whole, stride, into, into_stride, m, columns, rank_ * columns});
    whole = into;
    stride = into_stride;
  } else {
    member.barrier();
  }
  if (buffer.input.has_int16()) {
    context_.kernels->quantize(whole, stride, m, buffer.input, member.slice());
    if (ranks_ == 1 && buffer.input.has_f32()) {
      const IndexRange mine = kernels::cpu::split(m, member.slice());
      for (std::size_t row = mine.begin; row < mine.end; ++row) {
        std::copy_n(whole + row * stride, columns, buffer.input.f32(row));
      }
    }
    member.barrier();
  }
}

void RankExecutor::gather(Member& member, const Collective::ColumnGather& gather) {
  member.barrier();
  if (member.index() == 0 && !error_) {
    auto done = collective_->all_gather_columns(gather);
    if (!done) error_ = done.error();
  }
  member.barrier();
}

void RankExecutor::head(Member& member, StepPlan& plan) {
  const ModelSpec& spec = *context_.spec;
  const kernels::cpu::Kernels& kernels = *context_.kernels;
  const PackedMatrix& matrix = weights_.head.rows() > 0 ? weights_.head : context_.weights->embedding;
  const std::size_t hidden = spec.hidden;
  for (std::size_t first = 0; first < plan.logits.size(); first += logits_rows_max_) {
    const std::size_t count = std::min(logits_rows_max_, plan.logits.size() - first);
    const IndexRange mine = kernels::cpu::split(count, member.slice());
    for (std::size_t i = mine.begin; i < mine.end; ++i) {
      std::copy_n(x_.data() + plan.logits[first + i].row * hidden, hidden, last_.data() + i * hidden);
    }
    member.barrier();
    kernels.rms_norm(last_.data(), hidden, count, context_.weights->output_norm.data(), spec.norm_epsilon, head_input_,
                     member.slice());
    member.barrier();
    MatmulOutput out;
    out.y = ranks_ == 1 ? logits_.data() : logits_share_.data();
    out.stride = matrix.rows();
    kernels.matmul(matrix, head_input_, count, out, member.slice());
    if (ranks_ == 1) {
      member.barrier();
    } else {
      const std::size_t first_token = std::size_t{spec.vocabulary} * rank_ / ranks_;
      gather(member,
             {logits_share_.data(), matrix.rows(), logits_.data(), spec.vocabulary, count, matrix.rows(), first_token});
    }
    if (rank_ == 0) sample(member, plan, first, count);
    member.barrier();
  }
}

void RankExecutor::sample(Member& member, StepPlan& plan, std::size_t first, std::size_t count) {
  const std::size_t vocabulary = context_.spec->vocabulary;
  Sampler& sampler = samplers_[member.index()];
  for (std::size_t i = member.index(); i < count; i += member.count()) {
    const LogitsRow& entry = plan.logits[first + i];
    const SequenceStep& step = plan.batch.sequences[entry.sequence];
    SequenceResult& result = plan.result.sequences[entry.sequence];
    const std::span<const float> logits(logits_.data() + i * vocabulary, vocabulary);
    if (!all_finite(logits.data(), logits.size())) {
      plan.not_finite[first + i] = 1;
      continue;
    }
    if (entry.scored_token) {
      result.prompt_logprobs[entry.score_slot] = sampler.score(logits, *entry.scored_token, *step.prompt_logprobs);
    }
    if (!entry.draws) continue;
    SequenceResult drawn = sampler.sample(logits, *step.sample);
    result.token = drawn.token;
    result.logprobs = std::move(drawn.logprobs);
    if (drawn.not_finite) plan.not_finite[first + i] = 1;
  }
}

}  // namespace penstock::worker
