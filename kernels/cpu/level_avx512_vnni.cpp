// The avx512_vnni level: every kernel instantiated for one vector type. Compiled with the avx512 level's and
// -mavx512vnni; see CMakeLists.txt.
#include "kernels/cpu/simd_avx512.hpp"
#include "kernels/cpu/table_of.hpp"

namespace penstock::kernels::cpu {

const KernelTable avx512_vnni_table = detail::table_of<detail::Avx512VnniSimd>();

}  // namespace penstock::kernels::cpu
