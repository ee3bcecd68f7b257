// Caches filled by hand, and what a reconcile of them wants to write: for tests of single reconciles. Plain values.
// World's longer functions are in world.cpp, since each test file would compile them anew.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/json/json.hpp"
#include "operator/api/types.hpp"
#include "operator/core/names.hpp"
#include "operator/core/objects/types.hpp"
#include "operator/reconcilers/reconcile.hpp"

namespace penstock::ctl::testing {

class World {
 public:
  /// Every cache has had its first list.
  World();
  ~World();

  void service(std::string_view spec, std::string_view name = "chat");
  void node(const std::string& name, std::string_view labels = "{}", std::string_view rest = R"("allocatable":{})");
  /// So that the next look at a service finds it as if it had been ready for a while; and as if no node had room.
  void set_ready(const std::string& group);
  void set_unschedulable(const std::string& group);

  Context context();
  Outcome look_at_service(const std::string& name = "chat");
  Outcome look_at_group(const std::string& name);
  /// Puts what was created into the caches, as the API server would: uids, and the status of groups.
  Outcome keep(Outcome outcome);

  template <class T>
  static std::vector<const T*> all(const Outcome& outcome, const kube::ResourceType& type) {
    std::vector<const T*> out;
    for (const auto& write : outcome.writes) {
      const auto* one = std::get_if<T>(&write);
      if (one != nullptr && one->type == type) out.push_back(one);
    }
    return out;
  }
  /// Pods of a role that are only tried.
  static std::vector<const kube::Create*> tried(const Outcome& outcome, std::string_view role = "main");
  static std::vector<std::string> events(const Outcome& outcome);
  std::vector<const api::WorkerGroup*> groups() const { return stores.groups.all(); }
  const api::LLMServiceStatus& service_status(const std::string& name = "chat") const;
  /// "True TheReason" of a condition; "" if there is none.
  static std::string said(const kube::Conditions& conditions, std::string_view type);
  std::string said_of_service(std::string_view type, const std::string& name = "chat") const;
  std::string said_of_group(std::string_view type, const std::string& name) const;
  void change_pod(const kube::Key& key, const std::function<void(Pod&)>& change);
  void refuse(int code, std::string reason, std::string message, bool of_dry_run = false);

  Stores stores;
  Random random{1};
  Capabilities capabilities;
  kube::Timestamp now = kube::Timestamp::from_seconds(1'800'000'000);
  std::optional<WriteFailure> failure;
  std::optional<std::int64_t> certificate_end_s;
  int uids = 0;

 private:
  void sync();
  void take_status(const kube::ApplyStatus& write);
  void set_group_condition(const std::string& group, kube::Condition condition);
};

}  // namespace penstock::ctl::testing
