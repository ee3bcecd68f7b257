// What every custom resource of penstock.dev/v1alpha1 shares: metadata, conditions, references, counts that may be a
// share. Plain values; any thread. Bounds are those of the schemas in crds/.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/time/wall_clock.hpp"

namespace penstock::ctl::api {

inline constexpr std::string_view group = "penstock.dev";
inline constexpr std::string_view version = "v1alpha1";
inline constexpr std::string_view api_version = "penstock.dev/v1alpha1";

struct ObjectMeta {
  std::string name;
  std::string namespace_;
  std::string uid;
  std::string resource_version;
  std::int64_t generation = 0;
  std::map<std::string, std::string> labels;
  std::map<std::string, std::string> annotations;
  bool deleting = false;  // deletionTimestamp is set
};

struct Condition {
  std::string type;
  std::string status;  // True, False, Unknown
  std::string reason;
  std::string message;
  std::string last_transition_time;
  std::int64_t observed_generation = 0;
};

/// A Kubernetes quantity as written, "8Gi"; never empty in a resolved object.
struct Quantity {
  std::string text;
};

/// An object of the same namespace, by its name.
struct NameRef {
  std::string name;
};

/// A count of groups, or a share of them ("25%"). In JSON an integer or a string.
struct CountOrPercent {
  std::int32_t value = 0;
  bool is_percent = false;

  /// A share of `total`, rounded as the user of the value needs it; a count is returned as it is.
  std::int64_t rounded_up(std::int64_t total) const;
  std::int64_t rounded_down(std::int64_t total) const;
  friend bool operator==(const CountOrPercent&, const CountOrPercent&) = default;
};

}  // namespace penstock::ctl::api
