// The avx512 level: every kernel instantiated for one vector type. Compiled with -mavx512f -mavx512bw -mavx512vl on top
// of the avx2 level's; see CMakeLists.txt.
#include "kernels/cpu/simd_avx512.hpp"
#include "kernels/cpu/table_of.hpp"

namespace penstock::kernels::cpu {

const KernelTable avx512_table = detail::table_of<detail::Avx512Simd>();

}  // namespace penstock::kernels::cpu
