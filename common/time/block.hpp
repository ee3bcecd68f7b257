// Blocks the calling thread. For threads whose job is to take time (the fake executor); never on an I/O thread.
#pragma once

#include "common/time/clock.hpp"

namespace penstock {

void block_for(Duration duration);

}  // namespace penstock
