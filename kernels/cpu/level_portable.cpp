// The portable level: every kernel instantiated for one vector type. Runs on any processor.
#include "kernels/cpu/simd_portable.hpp"
#include "kernels/cpu/table_of.hpp"

namespace penstock::kernels::cpu {

const KernelTable portable_table = detail::table_of<detail::PortableSimd>();

}  // namespace penstock::kernels::cpu
