// KV transfer between two processes whose pools are on GPU 0. In builds with PENSTOCK_CUDA only.
#pragma once

namespace penstock::worker::transfer {

/// Prints; returns the exit code.
int measure_device(int rounds);

}  // namespace penstock::worker::transfer
