// WorkerGroup: one replica of a role, that is one gang of pods. Made and written by the operator alone; the spec never
// changes. Its status holds the only facts that cannot be observed again: epoch, restarts, window, next restart.
// Plain values; any thread.
#pragma once

#include <boost/json/value.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/json/json.hpp"
#include "operator/api/common.hpp"

namespace penstock::ctl::api {

struct WorkerGroupSpec {
  std::string service_name;
  std::string role;
  std::string revision;   // the value of the revision label, 10 characters
  std::string role_hash;  // "h1:" and 64 hex digits, with the format of the hash in front
  std::int32_t size = 1;  // pods
};

struct WorkerGroupStatus {
  std::int64_t observed_generation = 0;
  kube::Conditions conditions;  // Scheduled, Ready, Draining, Failed
  std::int64_t epoch = 0;       // grows with each restart of the gang
  std::int32_t restarts = 0;    // in the window
  std::optional<kube::Timestamp> window_start;
  std::optional<kube::Timestamp> next_restart_time;
  std::int32_t ready_pods = 0;  // of this epoch
  std::string pack_domain;      // the level that the gang is packed to in this epoch, after an escalation a broader one
  std::string domain;           // the instance it was bound in, e.g. a rack's label value
  std::string leader_address;   // host:port of rank 0
  friend bool operator==(const WorkerGroupStatus&, const WorkerGroupStatus&) = default;
};

struct WorkerGroup {
  kube::ObjectMeta meta;
  WorkerGroupSpec spec;
  WorkerGroupStatus status;
};

json::FieldResult<WorkerGroup> parse_worker_group(const boost::json::value& object);
boost::json::object to_json(const WorkerGroupSpec& spec);
boost::json::object to_json(const WorkerGroupStatus& status);

}  // namespace penstock::ctl::api
