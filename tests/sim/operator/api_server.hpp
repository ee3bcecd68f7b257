// A model of the Kubernetes API server for simulations: objects with versions, uids and generations, server-side apply
// with field owners, preconditions, finalizers, status apart, graceful deletion of pods, collection by owner, and a log
// of changes that watches replay as late as they like. One thread; bounded by the objects of one simulation.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/kube/model/status.hpp"
#include "common/kube/model/write.hpp"

namespace penstock::sim {

using ObjectPtr = std::shared_ptr<const json::Object>;

/// The answer to a write: the version of its object.
struct Written {
  std::uint64_t version = 0;
};

struct LogEntry {
  std::uint64_t version = 0;
  std::string type;  // ctl::type_name()
  kube::Key key;
  ObjectPtr object;  // as it was last, if deleted
  bool deleted = false;
};

class ApiServer {
 public:
  kube::Timestamp now = kube::Timestamp::from_seconds(1'800'000'000);

  /// What admission says no to.
  std::function<std::optional<kube::ApiStatus>(const kube::Create& write)> refuse_create;

  /// The version of the result; nothing is changed by a write that changes nothing.
  kube::ApiResult<Written> execute(const kube::Write& write);

  const json::Object* find(const std::string& type, const kube::Key& key) const;
  std::vector<ObjectPtr> list(const std::string& type) const;
  const std::vector<LogEntry>& log() const { return log_; }
  std::uint64_t version() const { return version_; }
  std::uint64_t requests() const { return requests_; }

  /// For the cluster's own programs: scheduler, kubelets, users.
  void replace(const std::string& type, json::Object object);
  void remove(const std::string& type, const kube::Key& key);  // at once
  void mark_deleted(const std::string& type, const kube::Key& key);
  /// One round of the collector: what has lost its owner goes, what has no finalizer left goes.
  void collect();

 private:
  using Id = std::pair<std::string, kube::Key>;
  struct Stored {
    ObjectPtr object;
    std::map<std::string, json::Object> applied;  // by field manager
  };

  kube::ApiResult<Written> run(const kube::Create& write);
  kube::ApiResult<Written> run(const kube::Apply& write);
  kube::ApiResult<Written> run(const kube::ApplyStatus& write);
  kube::ApiResult<Written> run(const kube::Patch& write);
  kube::ApiResult<Written> run(const kube::Delete& write);
  kube::ApiResult<Written> run(const kube::EmitEvent&) { return Written{version_}; }

  std::uint64_t store(const Id& id, json::Object object);
  void drop(const Id& id);

  std::map<Id, Stored> objects_;
  std::vector<LogEntry> log_;
  std::uint64_t version_ = 100, uids_ = 0, requests_ = 0;
};

kube::ApiStatus failure(int code, std::string reason, std::string message = {});

}  // namespace penstock::sim
