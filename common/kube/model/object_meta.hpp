// What we keep of an object's metadata: a few hundred bytes, never managedFields. Plain value; pure, any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/json/json.hpp"
#include "common/kube/model/key.hpp"
#include "common/kube/model/resource_type.hpp"
#include "common/kube/model/string_map.hpp"
#include "common/kube/model/timestamp.hpp"

namespace penstock::kube {

/// The owner that controls the object (controller: true); other owners are not kept.
struct ControllerOwner {
  std::string kind;
  std::string name;
  std::string uid;
  friend bool operator==(const ControllerOwner&, const ControllerOwner&) = default;
};

struct ObjectMeta {
  std::string namespace_;  // "" for cluster-scoped objects
  std::string name;
  std::string uid;
  std::uint64_t resource_version = 0;  // comparable within one resource type; 0: not a number, or not given
  std::int64_t generation = 0;
  Timestamp created;
  std::optional<Timestamp> deleted;  // deletionTimestamp: being deleted, waits for finalizers or the grace period
  StringMap labels;
  StringMap annotations;  // only those that MetaFilter keeps
  std::optional<ControllerOwner> controller;
  std::vector<std::string> finalizers;

  Key key() const { return {namespace_, name}; }
  friend bool operator==(const ObjectMeta&, const ObjectMeta&) = default;
};

/// Which annotations are worth their memory: those whose key starts with one of these. The default keeps ours.
struct MetaFilter {
  std::vector<std::string_view> annotation_prefixes = {"penstock.dev/"};
};

/// Reads `metadata` of an object. Only the name is required; unknown and wrongly typed fields are passed over, so that
/// no odd object stops a list.
Result<ObjectMeta> parse_meta(const json::Object& object, const MetaFilter& filter = {});

/// Text to a comparable number; 0 if it isn't one.
std::uint64_t parse_version(std::string_view text);

/// {"apiVersion", "kind", "metadata": {"namespace", "name", "labels", "annotations"}}, to add the rest to.
json::Object make_object(const ResourceType& type, const Key& key, const StringMap& labels = {},
                         const StringMap& annotations = {});
/// An entry of metadata.ownerReferences that makes `owner` the controller; deletion of the owner waits for the child.
json::Object controller_reference(const ResourceType& type, const ObjectMeta& owner);

/// Text at a path of member names; nothing if a step is missing or has another type. For projections.
std::optional<std::string_view> text_at(const json::Object& object, std::initializer_list<std::string_view> path);
std::optional<std::int64_t> integer_at(const json::Object& object, std::initializer_list<std::string_view> path);
std::optional<bool> bool_at(const json::Object& object, std::initializer_list<std::string_view> path);
const json::Object* object_at(const json::Object& object, std::initializer_list<std::string_view> path);
const json::Array* array_at(const json::Object& object, std::initializer_list<std::string_view> path);

}  // namespace penstock::kube
