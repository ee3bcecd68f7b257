// What this machine can do at most, measured in the same run as the kernels: reading memory and multiply-adds. Every
// share that a benchmark prints is against these.
#pragma once

#include "kernels/cpu/thread_pool.hpp"

namespace penstock::bench {

/// Bytes a second that the pool's members read from memory together (256 MiB, far beyond the caches). Best of some
/// runs.
double read_bandwidth(kernels::cpu::ThreadPool& pool);

/// Float operations a second (a multiply-add is two) that the pool reaches in registers with the widest vectors that
/// the kernels use here.
double fma_peak(kernels::cpu::ThreadPool& pool);

}  // namespace penstock::bench
