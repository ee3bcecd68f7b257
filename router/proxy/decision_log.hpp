// The last routing decisions with every term of their costs, for /debug/routes. No prompt text. One thread; bounded by
// the number of entries and of candidates in each. A decision is shared by the log and the request that it is about.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>

#include "common/base/id.hpp"
#include "common/time/wall_clock.hpp"
#include "router/core/fleet.hpp"
#include "router/core/migration/request_state.hpp"

namespace penstock::router {

struct Decision {
  std::string client_request_id;  // x-request-id
  RequestId request;
  std::string model;
  PlaceKind kind = PlaceKind::first;
  WallTime at;
  Duration took{};
  std::uint32_t prompt_tokens = 0;
  std::string worker;   // addresses
  std::string prefill;  // "" if it is not apart
  Placement placement;
  std::vector<std::string> candidates;  // addresses, one for each of the placement's
};
using DecisionPtr = std::shared_ptr<const Decision>;

/// Leaves out candidates of a large fleet, so that what is kept of a decision is bounded; the chosen one stays.
void shorten(Placement& placement);

class DecisionLog {
 public:
  explicit DecisionLog(std::size_t entries_max) : entries_max_(entries_max) {}
  void add(DecisionPtr decision);
  bool is_on() const { return entries_max_ > 0; }
  /// JSON; the newest first, at most `count`.
  std::string to_json(std::size_t count) const;

 private:
  std::size_t entries_max_;
  std::deque<DecisionPtr> entries_;
};

std::string_view to_string(PlaceKind kind);
/// One line for the x-penstock-route header.
std::string route_header(const Decision& decision);

}  // namespace penstock::router
