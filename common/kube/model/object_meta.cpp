#include "common/kube/model/object_meta.hpp"

#include <algorithm>
#include <charconv>

namespace penstock::kube {
namespace {

const json::Value* value_at(const json::Object& object, std::initializer_list<std::string_view> path) {
  const json::Object* current = &object;
  const json::Value* found = nullptr;
  for (const std::string_view step : path) {
    if (current == nullptr) return nullptr;
    found = current->if_contains(step);
    if (found == nullptr) return nullptr;
    current = found->if_object();
  }
  return found;
}

std::string copy_text(const json::Object& object, std::string_view key) {
  return std::string(text_at(object, {key}).value_or(std::string_view()));
}

StringMap copy_map(const json::Object* source, const std::vector<std::string_view>* prefixes) {
  StringMap map;
  if (source == nullptr) return map;
  for (const auto& [key, value] : *source) {
    const json::Value& held = value;
    if (!held.is_string()) continue;
    const std::string_view name = key;
    const bool kept = prefixes == nullptr || std::any_of(prefixes->begin(), prefixes->end(),
                                                         [&](std::string_view p) { return name.starts_with(p); });
    if (kept) map.set(name, std::string_view(held.get_string()));
  }
  return StringMap(static_cast<const StringMap&>(map));  // a copy has no room to spare; many are kept
}

std::optional<ControllerOwner> find_controller(const json::Object& metadata) {
  const json::Array* owners = array_at(metadata, {"ownerReferences"});
  if (owners == nullptr) return std::nullopt;
  for (const json::Value& entry : *owners) {
    const json::Object* owner = entry.if_object();
    if (owner == nullptr || !bool_at(*owner, {"controller"}).value_or(false)) continue;
    return ControllerOwner{copy_text(*owner, "kind"), copy_text(*owner, "name"), copy_text(*owner, "uid")};
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string_view> text_at(const json::Object& object, std::initializer_list<std::string_view> path) {
  const json::Value* value = value_at(object, path);
  if (value == nullptr || !value->is_string()) return std::nullopt;
  return std::string_view(value->get_string());
}

std::optional<std::int64_t> integer_at(const json::Object& object, std::initializer_list<std::string_view> path) {
  const json::Value* value = value_at(object, path);
  if (value == nullptr || !value->is_int64()) return std::nullopt;
  return value->get_int64();
}

std::optional<bool> bool_at(const json::Object& object, std::initializer_list<std::string_view> path) {
  const json::Value* value = value_at(object, path);
  if (value == nullptr || !value->is_bool()) return std::nullopt;
  return value->get_bool();
}

const json::Object* object_at(const json::Object& object, std::initializer_list<std::string_view> path) {
  const json::Value* value = value_at(object, path);
  return value == nullptr ? nullptr : value->if_object();
}

const json::Array* array_at(const json::Object& object, std::initializer_list<std::string_view> path) {
  const json::Value* value = value_at(object, path);
  return value == nullptr ? nullptr : value->if_array();
}

std::uint64_t parse_version(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  return failure == std::errc() && end == text.data() + text.size() ? number : 0;
}

Result<ObjectMeta> parse_meta(const json::Object& object, const MetaFilter& filter) {
  const json::Object* metadata = object_at(object, {"metadata"});
  if (metadata == nullptr) return make_error(ErrorCode::invalid_argument, "the object has no metadata");
  ObjectMeta meta;
  meta.name = copy_text(*metadata, "name");
  if (meta.name.empty()) return make_error(ErrorCode::invalid_argument, "the object has no name");
  meta.namespace_ = copy_text(*metadata, "namespace");
  meta.uid = copy_text(*metadata, "uid");
  meta.resource_version = parse_version(text_at(*metadata, {"resourceVersion"}).value_or(std::string_view()));
  meta.generation = integer_at(*metadata, {"generation"}).value_or(0);
  if (auto text = text_at(*metadata, {"creationTimestamp"})) {
    meta.created = parse_timestamp(*text).value_or(Timestamp());
  }
  if (auto text = text_at(*metadata, {"deletionTimestamp"})) {
    meta.deleted = parse_timestamp(*text).value_or(Timestamp());  // an odd time still means: being deleted
  }
  meta.labels = copy_map(object_at(*metadata, {"labels"}), nullptr);
  meta.annotations = copy_map(object_at(*metadata, {"annotations"}), &filter.annotation_prefixes);
  meta.controller = find_controller(*metadata);
  if (const json::Array* finalizers = array_at(*metadata, {"finalizers"})) {
    for (const json::Value& entry : *finalizers) {
      if (entry.is_string()) meta.finalizers.emplace_back(std::string_view(entry.get_string()));
    }
  }
  return meta;
}

json::Object make_object(const ResourceType& type, const Key& key, const StringMap& labels,
                         const StringMap& annotations) {
  json::Object metadata;
  if (!key.namespace_.empty()) metadata["namespace"] = key.namespace_;
  metadata["name"] = key.name;
  if (!labels.empty()) metadata["labels"] = to_json(labels);
  if (!annotations.empty()) metadata["annotations"] = to_json(annotations);
  json::Object object;
  object["apiVersion"] = type.api_version();
  object["kind"] = type.kind;
  object["metadata"] = std::move(metadata);
  return object;
}

json::Object controller_reference(const ResourceType& type, const ObjectMeta& owner) {
  json::Object reference;
  reference["apiVersion"] = type.api_version();
  reference["kind"] = type.kind;
  reference["name"] = owner.name;
  reference["uid"] = owner.uid;
  reference["controller"] = true;
  reference["blockOwnerDeletion"] = true;
  return reference;
}

}  // namespace penstock::kube
