// The kernels of one level as function pointers, and the flat arguments they take; internal. Kernels (kernels.hpp)
// checks shapes and calls through the table, so that code compiled for one instruction set holds no checks, no
// containers and no inline functions that the linker could share with other code.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/attention.hpp"
#include "kernels/cpu/gated_activation.hpp"
#include "kernels/cpu/slice.hpp"
#include "kernels/cpu/weight_format.hpp"

namespace penstock::kernels::cpu {

/// Row 0 of an Activations; null pointers for a form it does not have.
struct ActivationsRef {
  float* f32 = nullptr;  // [rows][blocks * 32]
  std::int16_t* q = nullptr;
  float* scale = nullptr;  // [rows][blocks], and the next two
  float* scaled_sum = nullptr;
  std::int32_t* sum = nullptr;
  std::size_t columns = 0;
  std::size_t blocks = 0;
};

struct MatmulCall {
  const std::byte* tiles = nullptr;
  std::size_t tile_bytes = 0;
  WeightFormat format = WeightFormat::f32;
  std::size_t rows = 0;
  std::size_t columns = 0;
  ActivationsRef x;
  std::size_t m = 0;
  // Either y ...
  float* y = nullptr;
  std::size_t stride = 0;
  const float* bias = nullptr;
  const float* residual = nullptr;
  std::size_t residual_stride = 0;
  // ... or gate and up, with `bias` added, combined into this.
  ActivationsRef swiglu_out;
  GatedActivation activation = GatedActivation::silu;
  // Of an expert: row t of the product reads row x_rows[t] of x, if not null; and y_weights[t] times row t, with
  // `bias` added, is added to row y_rows[t] of y, if not null.
  const std::uint32_t* x_rows = nullptr;
  const std::uint32_t* y_rows = nullptr;
  const float* y_weights = nullptr;
};

struct RouteCall {
  const float* logits = nullptr;  // [m][experts]
  std::size_t m = 0;
  std::size_t experts = 0;
  std::size_t per_token = 0;
  bool renormalises = false;
  std::uint32_t* chosen = nullptr;  // [m][per_token], and the next
  float* weights = nullptr;
};

struct RmsNormCall {
  float* x = nullptr;
  const float* delta = nullptr;  // added to x first, if not null
  std::size_t stride = 0;
  std::size_t m = 0;
  const float* weight = nullptr;
  float epsilon = 0;
  ActivationsRef out;
};

struct SwigluCall {
  const float* gate = nullptr;
  const float* up = nullptr;
  std::size_t stride = 0;
  std::size_t m = 0;
  ActivationsRef out;
};

struct KernelTable {
  void (*matmul)(const MatmulCall&, Slice);
  void (*matmul_swiglu)(const MatmulCall&, Slice);
  void (*route)(const RouteCall&, Slice);
  void (*rms_norm)(const RmsNormCall&, Slice);
  void (*quantize)(const float* x, std::size_t stride, std::size_t m, const ActivationsRef& out, Slice);
  void (*swiglu)(const SwigluCall&, Slice);
  void (*rope_and_store)(const AttentionArgs&, const RopeTable&, const QkNorm&, Slice);
  void (*attention)(const AttentionArgs&, const ActivationsRef& out, Slice);
  bool (*attention_is_split)(const AttentionArgs&);
  void (*merge_attention)(const AttentionArgs&, const ActivationsRef& out, Slice);
  std::size_t (*argmax)(const float* logits, std::size_t count);
};

extern const KernelTable portable_table;
#if defined(PENSTOCK_KERNELS_X86)
extern const KernelTable avx2_table;
extern const KernelTable avx512_table;
extern const KernelTable avx512_vnni_table;
#endif

}  // namespace penstock::kernels::cpu
