#include "router/core/membership/transfer_groups.hpp"

namespace penstock::router {
namespace {

std::string value_of(const TopologyLabels& labels, std::string_view key) {
  for (const auto& [name, value] : labels) {
    if (name == key) return value;
  }
  return {};
}

}  // namespace

TransferGroups::TransferGroups(std::string_view kv_layout, const TopologyLabels& labels) {
  if (kv_layout.empty()) return;
  // No label value holds a line feed, so the names of different groups differ.
  const std::string anywhere = std::string(kv_layout) + "\n" + value_of(labels, "pairing");
  const std::string rack = anywhere + "\n" + value_of(labels, "rack");
  names_ = {rack + "\n" + value_of(labels, "nvlink-domain"), rack, anywhere};
}

}  // namespace penstock::router
