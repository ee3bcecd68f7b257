// All kernels of one vector type, as the table of its level. Internal: included by the level_*.cpp alone, each compiled
// for its own instruction set. consteval, so that no object defines it and the linker can share nothing of it.
#pragma once

#include "kernels/cpu/attention_impl.hpp"
#include "kernels/cpu/elementwise_impl.hpp"
#include "kernels/cpu/kernel_table.hpp"
#include "kernels/cpu/matmul_impl.hpp"
#include "kernels/cpu/rope_impl.hpp"
#include "kernels/cpu/route_impl.hpp"

namespace penstock::kernels::cpu::detail {

template <class Simd>
consteval KernelTable table_of() {
  return {
      .matmul = matmul<Simd>,
      .matmul_swiglu = matmul_swiglu<Simd>,
      .route = route<Simd>,
      .rms_norm = rms_norm<Simd>,
      .quantize = quantize<Simd>,
      .swiglu = swiglu<Simd>,
      .rope_and_store = rope_and_store<Simd>,
      .attention = attention<Simd>,
      .attention_is_split = attention_is_split<Simd>,
      .merge_attention = merge_attention<Simd>,
      .argmax = argmax<Simd>,
  };
}

}  // namespace penstock::kernels::cpu::detail
