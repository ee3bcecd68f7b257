#include "tests/sim/operator/api_server.hpp"

#include <set>

#include "operator/reconcilers/stores.hpp"

namespace penstock::sim {
namespace {

using ctl::type_name;

std::string text(const json::Object& object, std::initializer_list<std::string_view> path) {
  return std::string(kube::text_at(object, path).value_or(""));
}

json::Object& metadata(json::Object& object) {
  return object["metadata"].as_object();
}

/// RFC 7396.
void merge(json::Object& into, const json::Object& patch) {
  for (const auto& [name, value] : patch) {
    if (value.is_null()) {
      into.erase(name);
    } else if (value.is_object()) {
      auto& place = into[name];
      if (!place.is_object()) place = json::Object{};
      merge(place.get_object(), value.get_object());
    } else {
      into[name] = value;
    }
  }
}

/// Takes away what `before` set and `after` doesn't; lists are one field.
void take_back(json::Object& from, const json::Object& before, const json::Object& after) {
  for (const auto& [name, value] : before) {
    const auto* still = after.if_contains(name);
    auto* place = from.if_contains(name);
    if (place == nullptr) continue;
    if (still == nullptr) {
      from.erase(name);
    } else if (value.is_object() && still->is_object() && place->is_object()) {
      take_back(place->get_object(), value.get_object(), still->get_object());
    }
  }
}

/// Whether both set a field to different values.
bool conflicts(const json::Object& a, const json::Object& b) {
  for (const auto& [name, value] : a) {
    const auto* other = b.if_contains(name);
    if (other == nullptr) continue;
    if (value.is_object() && other->is_object()) {
      if (conflicts(value.get_object(), other->get_object())) return true;
    } else if (value != *other) {
      return true;
    }
  }
  return false;
}

json::Value* step_to(json::Object& root, const std::string& pointer, std::string& last) {
  json::Value* at = nullptr;
  std::size_t begin = 1;
  while (true) {
    const auto end = pointer.find('/', begin);
    std::string part = pointer.substr(begin, end == std::string::npos ? end : end - begin);
    for (std::size_t k = part.find("~1"); k != std::string::npos; k = part.find("~1")) part.replace(k, 2, "/");
    if (end == std::string::npos) {
      last = part;
      return at;
    }
    if (at == nullptr) {
      at = root.if_contains(part);
    } else if (at->is_object()) {
      at = at->get_object().if_contains(part);
    } else {
      at = at->is_array() ? at->get_array().if_contains(static_cast<std::size_t>(std::stoul(part))) : nullptr;
    }
    if (at == nullptr) return nullptr;
    begin = end + 1;
  }
}

bool apply_operation(json::Object& root, const json::Object& operation) {
  std::string last;
  json::Value* at = step_to(root, text(operation, {"path"}), last);
  if (at == nullptr) return false;
  const std::string op = text(operation, {"op"});
  if (at->is_array()) {
    const auto index = static_cast<std::size_t>(std::stoul(last));
    if (index >= at->get_array().size()) return false;
    if (op == "remove") at->get_array().erase(at->get_array().begin() + static_cast<std::ptrdiff_t>(index));
    return op == "remove";
  }
  if (!at->is_object()) return false;
  auto& object = at->get_object();
  if (op == "test") return object.if_contains(last) != nullptr && object.at(last) == operation.at("value");
  if (op == "add") object[last] = operation.at("value");
  return op == "add";
}

bool fails(const kube::Preconditions& wanted, const json::Object& object) {
  if (!wanted.uid.empty() && wanted.uid != text(object, {"metadata", "uid"})) return true;
  return wanted.resource_version != 0 &&
         wanted.resource_version != kube::parse_version(text(object, {"metadata", "resourceVersion"}));
}

bool is_graceful(const std::string& type) {
  return type == "pods";
}

}  // namespace

kube::ApiStatus failure(int code, std::string reason, std::string message) {
  kube::ApiStatus status;
  status.code = code;
  status.reason = std::move(reason);
  status.message = std::move(message);
  return status;
}

kube::ApiResult<Written> ApiServer::execute(const kube::Write& write) {
  if (!std::holds_alternative<kube::EmitEvent>(write)) ++requests_;
  return std::visit([this](const auto& one) { return run(one); }, write);
}

const json::Object* ApiServer::find(const std::string& type, const kube::Key& key) const {
  const auto at = objects_.find({type, key});
  return at == objects_.end() ? nullptr : at->second.object.get();
}

std::vector<ObjectPtr> ApiServer::list(const std::string& type) const {
  std::vector<ObjectPtr> out;
  for (auto at = objects_.lower_bound({type, kube::Key{}}); at != objects_.end() && at->first.first == type; ++at) {
    out.push_back(at->second.object);
  }
  return out;
}

std::uint64_t ApiServer::store(const Id& id, json::Object object) {
  auto& stored = objects_[id];
  auto& meta = metadata(object);
  if (stored.object == nullptr) {
    meta["uid"] = "uid-" + std::to_string(++uids_);
    meta["creationTimestamp"] = kube::format_time(now);
    meta["generation"] = 1;
  } else {
    const json::Object& before = *stored.object;
    json::Object same = object;
    metadata(same)["resourceVersion"] = before.at("metadata").as_object().at("resourceVersion");
    if (same == before) return kube::parse_version(text(before, {"metadata", "resourceVersion"}));
    const json::Value none;
    const auto* spec = object.if_contains("spec");
    const auto* old_spec = before.if_contains("spec");
    const bool spec_differs = (spec == nullptr ? none : *spec) != (old_spec == nullptr ? none : *old_spec);
    if (spec_differs) meta["generation"] = meta["generation"].as_int64() + 1;
  }
  meta["resourceVersion"] = std::to_string(++version_);
  stored.object = std::make_shared<const json::Object>(std::move(object));
  log_.push_back({version_, id.first, id.second, stored.object, false});
  return version_;
}

void ApiServer::drop(const Id& id) {
  const auto at = objects_.find(id);
  log_.push_back({++version_, id.first, id.second, at->second.object, true});
  objects_.erase(at);
}

kube::ApiResult<Written> ApiServer::run(const kube::Create& write) {
  const Id id{type_name(write.type), {write.namespace_, text(write.body, {"metadata", "name"})}};
  if (objects_.contains(id)) return failure(409, "AlreadyExists");
  if (refuse_create) {
    if (auto said = refuse_create(write)) return *said;
  }
  if (write.dry_run == kube::DryRun::yes) return Written{version_};
  return Written{store(id, write.body)};
}

kube::ApiResult<Written> ApiServer::run(const kube::Apply& write) {
  const Id id{type_name(write.type), write.key};
  const auto at = objects_.find(id);
  if (at == objects_.end()) {
    const auto version = store(id, write.body);
    objects_[id].applied[write.field_manager] = write.body;
    return Written{version};
  }
  for (const auto& [manager, applied] : at->second.applied) {
    if (manager != write.field_manager && write.force == kube::Force::no && conflicts(applied, write.body)) {
      return failure(409, "Conflict");
    }
  }
  json::Object object = *at->second.object;
  take_back(object, at->second.applied[write.field_manager], write.body);
  merge(object, write.body);
  at->second.applied[write.field_manager] = write.body;
  return Written{store(id, std::move(object))};
}

kube::ApiResult<Written> ApiServer::run(const kube::ApplyStatus& write) {
  const Id id{type_name(write.type), write.key};
  const auto at = objects_.find(id);
  if (at == objects_.end()) return failure(404, "NotFound");
  if (text(write.body, {"metadata", "uid"}) != text(*at->second.object, {"metadata", "uid"}))
    return failure(409, "Conflict");
  json::Object object = *at->second.object;
  object["status"] = write.body.at("status");
  return Written{store(id, std::move(object))};
}

kube::ApiResult<Written> ApiServer::run(const kube::Patch& write) {
  const Id id{type_name(write.type), write.key};
  const auto at = objects_.find(id);
  if (at == objects_.end()) return failure(404, "NotFound");
  if (fails(write.preconditions, *at->second.object)) return failure(409, "Conflict");
  json::Object object = *at->second.object;
  if (write.kind == kube::PatchKind::merge) {
    merge(object, write.body.as_object());
  } else {
    for (const auto& operation : write.body.as_array()) {
      if (!apply_operation(object, operation.as_object())) return failure(422, "Invalid");
    }
  }
  return Written{store(id, std::move(object))};
}

kube::ApiResult<Written> ApiServer::run(const kube::Delete& write) {
  const Id id{type_name(write.type), write.key};
  const auto at = objects_.find(id);
  if (at == objects_.end()) return failure(404, "NotFound");
  if (fails(write.preconditions, *at->second.object)) return failure(409, "Conflict");
  mark_deleted(id.first, id.second);
  return Written{version_};
}

void ApiServer::replace(const std::string& type, json::Object object) {
  const kube::Key key{text(object, {"metadata", "namespace"}), text(object, {"metadata", "name"})};
  store({type, key}, std::move(object));
}

void ApiServer::remove(const std::string& type, const kube::Key& key) {
  if (objects_.contains({type, key})) drop({type, key});
}

void ApiServer::mark_deleted(const std::string& type, const kube::Key& key) {
  const Id id{type, key};
  const auto at = objects_.find(id);
  if (at == objects_.end()) return;
  const auto* finalizers = kube::array_at(*at->second.object, {"metadata", "finalizers"});
  const bool stays = is_graceful(type) || (finalizers != nullptr && !finalizers->empty());
  if (!stays) return drop(id);
  json::Object object = *at->second.object;
  if (metadata(object).contains("deletionTimestamp")) return;
  metadata(object)["deletionTimestamp"] = kube::format_time(now);
  store(id, std::move(object));
}

void ApiServer::collect() {
  std::set<std::string> alive;
  for (const auto& [id, stored] : objects_) alive.insert(text(*stored.object, {"metadata", "uid"}));
  std::vector<Id> gone, free;
  for (const auto& [id, stored] : objects_) {
    const auto* owners = kube::array_at(*stored.object, {"metadata", "ownerReferences"});
    const bool deleted = kube::text_at(*stored.object, {"metadata", "deletionTimestamp"}).has_value();
    const auto* finalizers = kube::array_at(*stored.object, {"metadata", "finalizers"});
    if (deleted && !is_graceful(id.first) && (finalizers == nullptr || finalizers->empty())) free.push_back(id);
    if (deleted || owners == nullptr || owners->empty()) continue;
    if (!alive.contains(text(owners->at(0).as_object(), {"uid"}))) gone.push_back(id);
  }
  for (const auto& id : free) drop(id);
  for (const auto& id : gone) mark_deleted(id.first, id.second);
}

}  // namespace penstock::sim
