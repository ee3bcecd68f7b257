// What a Reflector writes into: a Store<T> behind a projection of JSON objects to T. Pure; one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "common/base/result.hpp"
#include "common/json/json.hpp"
#include "common/kube/core/store.hpp"
#include "common/kube/model/object_meta.hpp"

namespace penstock::kube {

class CacheSink {
 public:
  virtual ~CacheSink() = default;
  virtual void begin_replace() = 0;
  /// An error: the object can't be read. What the cache has of it stays, also over the replace.
  virtual Result<void> stage(const json::Object& object) = 0;
  virtual void unstage(const json::Object& object) = 0;
  virtual void commit_replace(std::uint64_t version) = 0;
  virtual void abandon_replace() = 0;
  virtual Result<void> upsert(const json::Object& object) = 0;
  virtual void erase(const json::Object& object) = 0;
  virtual void advance(std::uint64_t version) = 0;
};

/// The projection reads what is needed of an object, 1 to 2 KB; an error passes the object over.
template <class T>
using Projection = std::function<Result<T>(const json::Object&)>;

template <class T>
class StoreSink final : public CacheSink {
 public:
  StoreSink(Store<T>& store, Projection<T> projection) : store_(store), projection_(std::move(projection)) {}

  void begin_replace() override { store_.begin_replace(); }
  Result<void> stage(const json::Object& object) override {
    auto projected = projection_(object);
    if (projected) {
      store_.stage(std::move(*projected));
      return {};
    }
    if (const auto meta = parse_meta(object)) store_.stage_unchanged(meta->key());
    return projected.error();
  }
  void unstage(const json::Object& object) override {
    if (const auto meta = parse_meta(object)) store_.unstage(meta->key());
  }
  void commit_replace(std::uint64_t version) override { store_.commit_replace(version); }
  void abandon_replace() override { store_.abandon_replace(); }
  Result<void> upsert(const json::Object& object) override {
    auto projected = projection_(object);
    if (projected) {
      store_.upsert(std::move(*projected));
      return {};
    }
    if (const auto meta = parse_meta(object)) store_.advance(meta->resource_version);
    return projected.error();
  }
  void erase(const json::Object& object) override {
    if (const auto meta = parse_meta(object)) store_.erase(meta->key(), meta->resource_version);
  }
  void advance(std::uint64_t version) override { store_.advance(version); }

 private:
  Store<T>& store_;
  Projection<T> projection_;
};

}  // namespace penstock::kube
