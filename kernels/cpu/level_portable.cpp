// The portable level: every kernel instantiated for one vector type. Runs on any processor.
#include "kernels/cpu/attention_impl.hpp"
#include "kernels/cpu/elementwise_impl.hpp"
#include "kernels/cpu/kernel_table.hpp"
#include "kernels/cpu/matmul_impl.hpp"
#include "kernels/cpu/rope_impl.hpp"
#include "kernels/cpu/simd_portable.hpp"

namespace penstock::kernels::cpu {

using Simd = detail::PortableSimd;

const KernelTable portable_table = {
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
