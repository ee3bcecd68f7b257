#include "worker/executor/cuda/step_experts.hpp"

namespace penstock::worker {

namespace cuda = kernels::cuda;
using cuda::Bf16;
using cuda::DeviceBuffer;
using cuda::Start;
using cuda::Stream;

Result<StepExperts> StepExperts::make(const ModelSpec& spec, std::uint32_t rows_max, Stream stream) {
  StepExperts experts;
  if (!spec.experts) return experts;
  experts.shape_ = {spec.experts->count, spec.experts->per_token, spec.hidden, spec.experts->ffn};
  experts.scaling_ = spec.experts->renormalises ? cuda::ExpertScaling::chosen : cuda::ExpertScaling::all;
  experts.rows_max_ = rows_max;
  const std::uint64_t choices = std::uint64_t{rows_max} * experts.shape_.chosen;
  const bool has_many = rows_max > cuda::few_expert_tokens;
  PENSTOCK_TRY(experts.choices_, DeviceBuffer::make(choices_bytes(experts.shape_, rows_max)));
  PENSTOCK_TRY(experts.activated_, DeviceBuffer::make(choices * experts.shape_.ffn * sizeof(Bf16)));
  PENSTOCK_TRY(experts.outputs_, DeviceBuffer::make(has_many ? choices * spec.hidden * sizeof(Bf16) : 0));
  PENSTOCK_TRY_VOID(experts.choices_.fill(0, stream));
  return experts;
}

Result<void> StepExperts::queue(cuda::ExpertStep step, const DeviceLayer& layer, Start start, Stream stream) const {
  step.weights = {layer.router.as<Bf16>(), layer.gate_up.bf16(), layer.down.bf16()};
  step.scaling = scaling_;
  step.choices = choices_in(choices_.data(), shape_, rows_max_);
  step.activated = activated_.as<Bf16>();
  step.outputs = outputs_.as<Bf16>();
  const bool are_few = step.tokens <= cuda::few_expert_tokens;
  return are_few ? run_few_experts(shape_, step, start, stream) : run_many_experts(shape_, step, start, stream);
}

Result<void> StepExperts::queue(const Bf16* x, const DeviceBuffer& y, std::uint32_t rows, const DeviceLayer& layer,
                                Start start, Stream stream) const {
  cuda::ExpertStep step;
  step.x = x;
  step.y = y.as<Bf16>();
  step.tokens = rows;
  return queue(step, layer, start, stream);
}

}  // namespace penstock::worker
