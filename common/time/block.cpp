#include "common/time/block.hpp"

#include <thread>

namespace penstock {

void block_for(Duration duration) {
  std::this_thread::sleep_for(duration);
}

}  // namespace penstock
