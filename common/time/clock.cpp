#include "common/time/clock.hpp"

namespace penstock {

TimePoint SteadyClock::now() const { return std::chrono::steady_clock::now(); }

}  // namespace penstock
