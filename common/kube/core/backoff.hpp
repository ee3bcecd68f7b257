// How long to wait before the next try: 0.8 s doubling to 30 s, drawn anew each time (full jitter), back to the start
// after two quiet minutes. Pure; one owner.
#pragma once

#include <optional>

#include "common/time/clock.hpp"
#include "common/time/random.hpp"

namespace penstock::kube {

struct BackoffOptions {
  Duration first = std::chrono::milliseconds(800);
  Duration max = std::chrono::seconds(30);
  Duration floor = std::chrono::milliseconds(50);  // no draw is shorter
  Duration reset_after = std::chrono::minutes(2);
};

class Backoff {
 public:
  explicit Backoff(BackoffOptions options = {}) : options_(options) {}

  /// After a failure. `at_least` is what the server asked for; the draw is added to it, so that all who were told the
  /// same come back at different times.
  Duration next(TimePoint now, Random& random, std::optional<Duration> at_least = {});

 private:
  BackoffOptions options_;
  Duration ceiling_{0};
  std::optional<TimePoint> last_;
};

}  // namespace penstock::kube
