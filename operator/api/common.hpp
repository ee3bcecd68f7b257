// What the custom resources of penstock.dev/v1alpha1 share: references and counts that may be a share or "All". Plain
// values; any thread. Bounds are those of the schemas in crds/.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/kube/model/conditions.hpp"
#include "common/kube/model/object_meta.hpp"
#include "common/kube/model/quantity.hpp"
#include "common/kube/model/timestamp.hpp"

namespace penstock::ctl::api {

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

/// A count, or everything there is. In JSON an integer or "All".
struct CountOrAll {
  std::optional<std::int32_t> count;  // absent: all
  friend bool operator==(const CountOrAll&, const CountOrAll&) = default;
};

}  // namespace penstock::ctl::api
