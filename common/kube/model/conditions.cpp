#include "common/kube/model/conditions.hpp"

#include <algorithm>

#include "common/kube/model/object_meta.hpp"

namespace penstock::kube {
namespace {

Conditions::const_iterator place_of(const Conditions& conditions, std::string_view type) {
  return std::lower_bound(conditions.begin(), conditions.end(), type,
                          [](const Condition& condition, std::string_view wanted) { return condition.type < wanted; });
}

ConditionStatus parse_condition_status(std::string_view text) {
  if (text == "True") return ConditionStatus::yes;
  if (text == "False") return ConditionStatus::no;
  return ConditionStatus::unknown;
}

}  // namespace

std::string_view to_string(ConditionStatus status) {
  switch (status) {
    case ConditionStatus::yes:
      return "True";
    case ConditionStatus::no:
      return "False";
    case ConditionStatus::unknown:
      return "Unknown";
  }
  return "?";
}

const Condition* find_condition(const Conditions& conditions, std::string_view type) {
  const auto place = place_of(conditions, type);
  return place != conditions.end() && place->type == type ? &*place : nullptr;
}

bool is_true(const Conditions& conditions, std::string_view type) {
  const Condition* condition = find_condition(conditions, type);
  return condition != nullptr && condition->status == ConditionStatus::yes;
}

ConditionChange set_condition(Conditions& conditions, Condition condition, Timestamp now) {
  const auto place = conditions.begin() + (place_of(conditions, condition.type) - conditions.cbegin());
  if (place == conditions.end() || place->type != condition.type) {
    condition.last_transition = now;
    conditions.insert(place, std::move(condition));
    return ConditionChange::status;
  }
  const bool flipped = place->status != condition.status;
  condition.last_transition = flipped ? now : place->last_transition;
  if (*place == condition) return ConditionChange::none;
  *place = std::move(condition);
  return flipped ? ConditionChange::status : ConditionChange::detail;
}

Conditions parse_conditions(const json::Object& status) {
  Conditions conditions;
  const json::Array* entries = array_at(status, {"conditions"});
  if (entries == nullptr) return conditions;
  for (const json::Value& entry : *entries) {
    const json::Object* object = entry.if_object();
    if (object == nullptr) continue;
    Condition condition;
    condition.type = text_at(*object, {"type"}).value_or(std::string_view());
    if (condition.type.empty() || find_condition(conditions, condition.type) != nullptr) continue;
    condition.status = parse_condition_status(text_at(*object, {"status"}).value_or(std::string_view()));
    condition.reason = text_at(*object, {"reason"}).value_or(std::string_view());
    condition.message = text_at(*object, {"message"}).value_or(std::string_view());
    condition.observed_generation = integer_at(*object, {"observedGeneration"}).value_or(0);
    if (auto text = text_at(*object, {"lastTransitionTime"})) {
      condition.last_transition = parse_timestamp(*text).value_or(Timestamp());
    }
    conditions.insert(place_of(conditions, condition.type), std::move(condition));
  }
  return conditions;
}

json::Array to_json(const Conditions& conditions) {
  json::Array entries;
  for (const Condition& condition : conditions) {
    json::Object object;
    object["type"] = condition.type;
    object["status"] = to_string(condition.status);
    object["reason"] = condition.reason;
    object["message"] = condition.message;
    if (condition.observed_generation != 0) object["observedGeneration"] = condition.observed_generation;
    object["lastTransitionTime"] = format_time(condition.last_transition);
    entries.push_back(std::move(object));
  }
  return entries;
}

}  // namespace penstock::kube
