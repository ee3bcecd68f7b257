// Status conditions as the API defines them. One list an object, at most some dozens. Plain values; pure, any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/json/json.hpp"
#include "common/kube/model/timestamp.hpp"

namespace penstock::kube {

enum class ConditionStatus : std::uint8_t { yes, no, unknown };
std::string_view to_string(ConditionStatus status);  // "True", "False", "Unknown"

struct Condition {
  std::string type;  // "Ready"
  ConditionStatus status = ConditionStatus::unknown;
  std::string reason;  // CamelCase, never empty
  std::string message;
  std::int64_t observed_generation = 0;
  Timestamp last_transition;

  friend bool operator==(const Condition&, const Condition&) = default;
};
using Conditions = std::vector<Condition>;  // sorted by type

const Condition* find_condition(const Conditions& conditions, std::string_view type);
bool is_true(const Conditions& conditions, std::string_view type);

enum class ConditionChange : std::uint8_t {
  none,    // nothing differs: no write
  detail,  // reason, message or generation
  status,  // the status itself, or the condition is new: worth an event
};
/// Adds or replaces the condition of that type. `last_transition` is set to `now` only when the status changes.
ConditionChange set_condition(Conditions& conditions, Condition condition, Timestamp now);

/// Odd entries are passed over.
Conditions parse_conditions(const json::Object& status);
json::Array to_json(const Conditions& conditions);

}  // namespace penstock::kube
