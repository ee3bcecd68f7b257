// The avx2 level: every kernel instantiated for one vector type. Compiled with -mavx2 -mfma -mf16c; see CMakeLists.txt.
#include "kernels/cpu/attention_impl.hpp"
#include "kernels/cpu/elementwise_impl.hpp"
#include "kernels/cpu/kernel_table.hpp"
#include "kernels/cpu/matmul_impl.hpp"
#include "kernels/cpu/rope_impl.hpp"
#include "kernels/cpu/simd_avx2.hpp"

namespace penstock::kernels::cpu {

using Simd = detail::Avx2Simd;

const KernelTable avx2_table = {
    .matmul = detail::matmul<Simd>,
    .matmul_swiglu = detail::matmul_swiglu<Simd>,
    .rms_norm = detail::rms_norm<Simd>,
    .quantize = detail::quantize<Simd>,
    .swiglu = detail::swiglu<Simd>,
    .rope_and_store = detail::rope_and_store<Simd>,
    .attention = detail::attention<Simd>,
    .attention_is_split = detail::attention_is_split<Simd>,
    .merge_attention = detail::merge_attention<Simd>,
    .argmax = detail::argmax<Simd>,
};

}  // namespace penstock::kernels::cpu
