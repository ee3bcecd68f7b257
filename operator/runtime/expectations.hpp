// The read-your-writes barrier. A reconcile reads caches that lag behind what the operator itself has written; acting
// on them would make pods twice. After each write the versions and uids it produced are noted under the uid of the
// object that was reconciled, and that object is left alone until the caches have them. Keyed by uid, so that nothing
// survives a delete and re-create under the same name. A note that isn't met in time is dropped and counted: a barrier
// must not become a dead end. Owner: the strand of one controller; not thread-safe. Bounded by the writes in flight.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/time/clock.hpp"

namespace penstock::ctl {

/// What the caches know. `type` is the plural with its group, "pods" or "podgroups.scheduling.k8s.io".
class CacheView {
 public:
  virtual ~CacheView() = default;
  /// The newest resource version that the cache of the type has reached; versions of one type can be compared.
  virtual std::uint64_t version(std::string_view type) const = 0;
  /// Whether the object is there and isn't being deleted.
  virtual bool is_live(std::string_view type, std::string_view uid) const = 0;
};

class Expectations {
 public:
  explicit Expectations(Duration patience = std::chrono::minutes(5)) : patience_(patience) {}

  /// An object was created or changed; the answer carried this version.
  void on_written(std::string_view owner_uid, std::string_view type, std::uint64_t version, TimePoint now);
  /// An object's deletion was accepted.
  void on_deleted(std::string_view owner_uid, std::string_view type, std::string_view uid, TimePoint now);
  /// The owner is gone.
  void forget(std::string_view owner_uid) { notes_.erase(std::string(owner_uid)); }

  /// Whether the caches have all that was written for this owner. Drops what is met.
  bool are_met(std::string_view owner_uid, const CacheView& caches, TimePoint now);

  std::size_t owners() const { return notes_.size(); }
  std::uint64_t expired() const { return expired_; }

 private:
  struct Note {
    std::string type;
    std::string uid;            // of a deletion; empty for a write
    std::uint64_t version = 0;  // of a write
    TimePoint at;
  };

  Duration patience_;
  std::uint64_t expired_ = 0;
  std::unordered_map<std::string, std::vector<Note>> notes_;
};

}  // namespace penstock::ctl
