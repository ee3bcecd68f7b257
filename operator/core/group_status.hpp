// How a group says what it is: its conditions, what is worth an event, and whether the status is worth a write now. For
// group.cpp. Pure; any thread. O(pods).
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "operator/core/group.hpp"

namespace penstock::ctl::detail {

/// The pod that stands for each rank; null if there is none.
using Members = std::vector<const Pod*>;
std::size_t count_bound(const Members& members);
std::size_t count_ready(const Members& members);

/// Writes into the status and the notices of a plan; all three arguments outlive it.
class GroupTeller {
 public:
  GroupTeller(const GroupInput& input, const Members& members, GroupPlan& plan)
      : input_(input), members_(members), plan_(plan) {}

  /// It has been ready in this epoch before: the condition turned False after the pods were bound.
  bool was_ready() const;
  void failed(std::string_view reason, std::string message);
  /// Once all is decided: conditions and counts, and for how long they can wait.
  void tell();

 private:
  void set(kube::Condition condition);
  std::pair<std::string, std::string> trouble(std::string_view otherwise) const;
  void tell_conditions();
  void tell_trouble(const std::string& reason, const std::string& detail);
  void hold();

  const GroupInput& input_;
  const Members& members_;
  GroupPlan& plan_;
};

}  // namespace penstock::ctl::detail
