// What the expectation barrier asks of the stores: how far each has come, and whether a uid is still there. Fed by the
// stores' own changes. Thread: that of the stores. Bounded by their objects: a uid each.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <unordered_set>

#include "common/kube/core/store.hpp"
#include "common/kube/model/resource_type.hpp"
#include "operator/reconcilers/stores.hpp"
#include "operator/runtime/expectations.hpp"

namespace penstock::ctl {

class Caches final : public CacheView {
 public:
  /// The store must outlive this.
  template <class T>
  void add(const kube::ResourceType& type, kube::Store<T>& store) {
    Cache& cache = caches_[type_name(type)];
    cache.version = [&store] { return store.version(); };
    store.observe([&cache](const kube::Change<T>& change) {
      if (change.before != nullptr) cache.live.erase(change.before->meta.uid);
      if (change.after != nullptr && !change.after->meta.deleted) cache.live.insert(change.after->meta.uid);
    });
  }

  /// A type that nobody watches is always up to date: there is nothing to wait for.
  std::uint64_t version(std::string_view type) const override {
    const auto found = caches_.find(type);
    return found == caches_.end() ? ~std::uint64_t{0} : found->second.version();
  }
  bool is_live(std::string_view type, std::string_view uid) const override {
    const auto found = caches_.find(type);
    return found != caches_.end() && found->second.live.contains(std::string(uid));
  }

 private:
  struct Cache {
    std::function<std::uint64_t()> version;
    std::unordered_set<std::string> live;
  };
  std::map<std::string, Cache, std::less<>> caches_;
};

}  // namespace penstock::ctl
