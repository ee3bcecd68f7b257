// The CPU kernels of one instruction set level. A model step calls them in order on every member of a ThreadPool with
// member.slice(), and a barrier after each one whose output another member reads.
//
// Guarantees, tested for each level: an output element depends only on its own row's inputs, never on the number of
// rows, their order, the chunking of a prompt, or the number of slices; equal inputs give equal bits. Outputs are
// written, never read, except where "adds to" is said. No kernel allocates; scratch lives on the stack (< 256 KiB).
// Shapes are checked invariants (PENSTOCK_CHECK): the caller has validated the model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/base/types.hpp"
#include "kernels/cpu/activations.hpp"
#include "kernels/cpu/attention.hpp"
#include "kernels/cpu/features.hpp"
#include "kernels/cpu/gated_activation.hpp"
#include "kernels/cpu/packed_matrix.hpp"
#include "kernels/cpu/slice.hpp"

namespace penstock::kernels::cpu {

/// Where a matrix product goes: y[m][rows of the matrix], rows `stride` floats apart.
struct MatmulOutput {
  float* y = nullptr;
  std::size_t stride = 0;
  const float* bias = nullptr;      // [rows]; null: none
  const float* residual = nullptr;  // [m][rows] with stride `residual_stride`; added last. May be y itself ("adds to").
  std::size_t residual_stride = 0;
};

/// How a row chooses `per_token` of `experts` by its logits: the largest, of equals the lower index; NaN comes last.
/// Weights are the softmax over all logits, or over the chosen ones if it renormalises.
struct RouteOptions {
  std::size_t experts = 0;
  std::size_t per_token = 0;
  bool renormalises = false;
};

/// The rows of a step that one expert works on. Between its two products they lie one below the other, after those of
/// the experts before it.
struct ExpertRows {
  const std::uint32_t* rows = nullptr;  // [count], each once
  const float* weights = nullptr;       // [count]
  std::size_t count = 0;
  std::size_t first = 0;  // place of rows[0] between the products
};

/// What an expert has besides its matrices. Biases have as many values as the matrices have rows, in the packed order.
struct ExpertOptions {
  const float* gate_up_bias = nullptr;  // null: none
  const float* down_bias = nullptr;
  GatedActivation activation = GatedActivation::silu;
};

struct KernelTable;  // function pointers of one level; internal

class Kernels {
 public:
  /// Throws std::invalid_argument if the level does not run here.
  explicit Kernels(IsaLevel level = best_isa_level());

  IsaLevel level() const { return level_; }

  /// out.f32 [m][weights.columns()] with stride `stride`: rows `tokens` of the embedding. Sliced by row.
  void embed(const PackedMatrix& weights, std::span<const TokenId> tokens, float* out, std::size_t stride,
             Slice slice) const;

  /// out row r = x row r / rms(x row r) * weight, in the form(s) that `out` has. x [m][out.columns()]. Sliced by row.
  void rms_norm(const float* x, std::size_t stride, std::size_t m, const float* weight, float epsilon, Activations& out,
                Slice slice) const;

  /// The same with a residual first: x row r += delta row r (both [m][out.columns()], same stride), then the norm.
  void add_rms_norm(float* x, const float* delta, std::size_t stride, std::size_t m, const float* weight, float epsilon,
                    Activations& out, Slice slice) const;

  /// Computes the int16 form of rows [0, m) from their f32 form (form both), or from `x` when given. Sliced by row.
  void quantize(Activations& activations, std::size_t m, Slice slice) const;
  void quantize(const float* x, std::size_t stride, std::size_t m, Activations& out, Slice slice) const;

  /// y[r][o] = dot(x row r, weights row o) + bias[o] + residual[r][o] for r in [0, m). x must have the form that
  /// weights.activation_form() asks for. Sliced by output rows.
  void matmul(const PackedMatrix& weights, const Activations& x, std::size_t m, const MatmulOutput& out,
              Slice slice) const;

  /// out[r][i] = silu(gate_i . x_r) * (up_i . x_r) for a matrix of PackedMatrix::pack_gate_up; out.columns() is half of
  /// weights.rows(). Writes the form(s) that `out` has. Sliced by output columns.
  void matmul_swiglu(const PackedMatrix& weights, const Activations& x, std::size_t m, Activations& out,
                     Slice slice) const;

  /// out[r][i] = silu(gate[r][i]) * up[r][i]; for models whose gate and up have different formats. Sliced by row.
  void swiglu(const float* gate, const float* up, std::size_t stride, std::size_t m, Activations& out,
              Slice slice) const;

  /// chosen[r][i], weights[r][i]: the experts of row r by falling logit. logits [m][experts], chosen and weights
  /// [m][per_token]. Sliced by row.
  void route(const float* logits, std::size_t m, const RouteOptions& options, std::uint32_t* chosen, float* weights,
             Slice slice) const;

  /// matmul_swiglu() of an expert: out row first + i from x row rows[i]. Sliced by output columns.
  void expert_gate_up(const PackedMatrix& weights, const Activations& x, const ExpertRows& rows,
                      const ExpertOptions& options, Activations& out, Slice slice) const;

  /// Adds to y row rows[i] weights[i] times (the product with x row first + i, and bias); rows of y are `stride` floats
  /// apart. Sliced by output rows, so that a member may call it for one expert after the other without a barrier.
  void expert_down(const PackedMatrix& weights, const Activations& x, const ExpertRows& rows,
                   const ExpertOptions& options, float* y, std::size_t stride, Slice slice) const;

  /// Applies QK-norm (if any) and RoPE to q and k in place, then writes k and v of every row into the KV pool.
  /// Sliced by (row). A barrier must follow before attention().
  void rope_and_store(const AttentionArgs& args, const RopeTable& rope, const QkNorm& norm, Slice slice) const;

  /// out row r, columns [h * head_dim, (h + 1) * head_dim) = softmax(q_h . K * scale) V over the row's context, read
  /// from the pool. Writes the form(s) that `out` has (int16 needs head_dim % 32 == 0; otherwise use f32 and
  /// quantize()). Sliced over (sequence, kv head, query tile, part of a long decode row) by cost. If
  /// attention_is_split(), a barrier and merge_attention() must follow, which completes the rows that were cut.
  void attention(const AttentionArgs& args, Activations& out, Slice slice) const;
  bool attention_is_split(const AttentionArgs& args) const;
  void merge_attention(const AttentionArgs& args, Activations& out, Slice slice) const;

  /// Index of the largest of logits[0 .. count); the lowest of equals. NaN never wins; 0 if all are NaN.
  std::size_t argmax(const float* logits, std::size_t count) const;

 private:
  IsaLevel level_;
  const KernelTable* table_;
};

}  // namespace penstock::kernels::cpu
