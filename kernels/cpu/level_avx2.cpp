// The avx2 level: every kernel instantiated for one vector type. Compiled with -mavx2 -mfma -mf16c; see CMakeLists.txt.
#include "kernels/cpu/simd_avx2.hpp"
#include "kernels/cpu/table_of.hpp"

namespace penstock::kernels::cpu {

const KernelTable avx2_table = detail::table_of<detail::Avx2Simd>();

}  // namespace penstock::kernels::cpu
