// Between which workers KV can move, and how far it has to go. Workers of one group at a nearness are that near to each
// other or nearer. Plain values, made from what a worker says of itself and, in a cluster, from the labels of its pod.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace penstock::router {

/// Topology of a worker, as key and value. Keys with a meaning here: `nvlink-domain`, `rack`, and `pairing`: workers of
/// different pairing keys hold incompatible revisions and never exchange KV. Others are for people.
using TopologyLabels = std::vector<std::pair<std::string, std::string>>;

enum class Nearness : std::uint8_t { nvlink_domain, rack, anywhere };

class TransferGroups {
 public:
  TransferGroups() = default;
  /// A missing label counts as a value of its own: where nobody knows the racks, all workers are in one.
  TransferGroups(std::string_view kv_layout, const TopologyLabels& labels);

  const std::string& at(Nearness nearness) const { return names_[static_cast<std::size_t>(nearness)]; }
  /// KV of one can be used by the other. False if either says no layout.
  bool can_exchange(const TransferGroups& other) const {
    return !at(Nearness::anywhere).empty() && at(Nearness::anywhere) == other.at(Nearness::anywhere);
  }

 private:
  std::array<std::string, 3> names_;
};

}  // namespace penstock::router
