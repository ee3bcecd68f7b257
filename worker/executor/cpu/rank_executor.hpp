// One tensor-parallel rank of the CPU executor: its weights, buffers, thread team and end of the collective. A step is
// one run of the team; operations are separated by barriers. Every matrix is cut by output rows, so a rank gathers the
// inputs of attention output and FFN down, and the results of all four matrices that follow the residual path.
// Owner: CpuExecutor; run() is called by the rank's thread. Everything is allocated at construction.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/base/error.hpp"
#include "kernels/cpu/kernels.hpp"
#include "kernels/cpu/thread_pool.hpp"
#include "worker/comm/collective.hpp"
#include "worker/core/sampling/sampler.hpp"
#include "worker/executor/cpu/expert_groups.hpp"
#include "worker/executor/cpu/step_plan.hpp"
#include "worker/model/model_spec.hpp"
#include "worker/model/weights.hpp"

namespace penstock::worker {

/// What all ranks share and none changes.
struct RankContext {
  const ModelSpec* spec = nullptr;
  const ModelWeights* weights = nullptr;
  const kernels::cpu::Kernels* kernels = nullptr;
  kernels::cpu::RopeTable rope;
  kernels::cpu::KvPoolView kv;  // first_kv_head is the rank's own
  std::uint32_t step_tokens_max = 0;
  std::uint32_t sequences_max = 0;
};

/// The input of a matrix whose columns several ranks produce. The producer writes target(); after gather_input() the
/// matrix reads `input`. With one rank the producer writes `input` itself wherever the kernel can.
struct SharedInput {
  kernels::cpu::Activations input;  // [rows][all columns] in the form that the matrix wants
  kernels::cpu::Activations local;  // [rows][columns of this rank], f32; empty if the producer writes `input`
  std::vector<float> whole;         // [rows][all columns], f32; only to be quantised into `input`
  bool is_direct = true;

  kernels::cpu::Activations& target() { return is_direct ? input : local; }
};

class RankExecutor {
 public:
  RankExecutor(const RankContext& context, Collective* collective, kernels::cpu::ThreadPoolOptions threads);

  /// Computes the plan; rank 0 fills plan.result. An error means that the group is broken.
  std::optional<Error> run(StepPlan& plan);

 private:
  using Member = kernels::cpu::ThreadPool::Member;

  void allocate();
  void allocate_ffn();
  void make_input(SharedInput& buffer, std::size_t rows, std::size_t columns, kernels::cpu::ActivationForm form,
                  bool can_be_direct);
  void forward(Member& member, StepPlan& plan);
  void attention(Member& member, const StepPlan& plan, std::uint32_t layer);
  void ffn(Member& member, const StepPlan& plan, std::uint32_t layer);
  /// Rows choose their experts; x_'s columns go to share_, where experts then add to them.
  void route(Member& member, std::size_t m, std::uint32_t layer);
  void experts(Member& member, const StepPlan& plan, std::uint32_t layer);
  void head(Member& member, StepPlan& plan);
  void sample(Member& member, StepPlan& plan, std::size_t first, std::size_t count);
  void project(Member& member, const kernels::cpu::PackedMatrix& matrix, const kernels::cpu::Activations& input,
               std::size_t m, const float* bias);
  /// Ends what project() does: share_, of several ranks, into x_.
  void gather_residual(Member& member, std::size_t m);
  void gather_input(Member& member, SharedInput& buffer, std::size_t m);
  /// Between two barriers of the team, member 0 speaks for the rank.
  void gather(Member& member, const Collective::ColumnGather& gather);

  RankContext context_;
  Collective* collective_;  // null: one rank
  std::uint32_t rank_, ranks_;
  const RankWeights& weights_;
  kernels::cpu::ThreadPool pool_;
  std::optional<Error> error_;  // written by member 0

  std::vector<float> x_;         // [rows][hidden], the residual path
  std::vector<float> share_;     // [rows][hidden / ranks]
  std::vector<float> qkv_;       // [rows][qkv columns of the rank]
  std::vector<float> partials_;  // [slots][attention_slot_floats()]
  std::size_t partial_slots_ = 0;
  std::vector<float> gate_, up_;  // [rows][ffn / ranks], only if their formats differ
  kernels::cpu::Activations normed_;
  SharedInput attended_, activated_;  // activated_ has a row for each expert of a row, grouped by expert
  std::vector<float> router_logits_;  // [rows][experts]
  ExpertGroups groups_;

  std::size_t logits_rows_max_ = 0;
  std::vector<float> last_;  // [logits rows][hidden]
  kernels::cpu::Activations head_input_;
  std::vector<float> logits_share_;  // [logits rows][the rank's part of the vocabulary]
  std::vector<float> logits_;        // [logits rows][vocabulary]
  std::vector<Sampler> samplers_;    // one a member, rank 0 only
};

}  // namespace penstock::worker
