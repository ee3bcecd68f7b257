#include "common/kube/model/write.hpp"

#include <boost/json/serialize.hpp>

namespace penstock::kube {
namespace {

std::string_view to_string(Propagation propagation) {
  switch (propagation) {
    case Propagation::background:
      return "Background";
    case Propagation::foreground:
      return "Foreground";
    case Propagation::orphan:
      return "Orphan";
  }
  return "?";
}

class Query {
 public:
  void add(std::string_view name, std::string_view value) {
    text_ += text_.empty() ? "?" : "&";
    text_ += std::string(name) + "=" + percent_encode(value);
  }
  void add(DryRun dry_run) {
    if (dry_run == DryRun::yes) add("dryRun", "All");
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

WriteRequest apply_request(const ResourceType& type, const Key& key, std::string_view subresource,
                           const json::Object& body, std::string_view field_manager, Force force, DryRun dry_run) {
  Query query;
  query.add("fieldManager", field_manager);
  query.add("force", force == Force::yes ? "true" : "false");
  query.add(dry_run);
  // JSON is YAML, and every server since 1.22 takes this type.
  return {"apply", "PATCH", type.path(key, subresource) + query.text(), "application/apply-patch+yaml",
          boost::json::serialize(body)};
}

json::Value with_preconditions(const Patch& patch) {
  json::Value body = patch.body;
  const Preconditions& wanted = patch.preconditions;
  if (patch.kind == PatchKind::json) {
    json::Array tests;
    const auto test = [&](std::string_view path, std::string_view value) {
      json::Object entry;
      entry["op"] = "test";
      entry["path"] = path;
      entry["value"] = value;
      tests.push_back(std::move(entry));
    };
    if (!wanted.uid.empty()) test("/metadata/uid", wanted.uid);
    if (wanted.resource_version != 0) test("/metadata/resourceVersion", std::to_string(wanted.resource_version));
    if (json::Array* operations = body.if_array()) operations->insert(operations->begin(), tests.begin(), tests.end());
    return body;
  }
  json::Object* object = body.if_object();
  if (object == nullptr || (wanted.uid.empty() && wanted.resource_version == 0)) return body;
  json::Value& metadata = (*object)["metadata"];
  if (!metadata.is_object()) metadata.emplace_object();
  if (!wanted.uid.empty()) metadata.get_object()["uid"] = wanted.uid;
  if (wanted.resource_version != 0) {
    metadata.get_object()["resourceVersion"] = std::to_string(wanted.resource_version);
  }
  return body;
}

template <class T>
std::string describe_target(std::string_view verb, const T& write) {
  return std::string(verb) + " " + std::string(write.type.kind) + " " + to_string(write.key);
}

struct Describe {
  std::string operator()(const Create& write) const {
    const std::string_view name = text_at(write.body, {"metadata", "name"}).value_or("?");
    return (write.dry_run == DryRun::yes ? "try " : "create ") + std::string(write.type.kind) + " " +
           to_string(Key{write.namespace_, std::string(name)});
  }
  std::string operator()(const Apply& write) const { return describe_target("apply", write); }
  std::string operator()(const ApplyStatus& write) const { return describe_target("apply status of", write); }
  std::string operator()(const Patch& write) const { return describe_target("patch", write); }
  std::string operator()(const Delete& write) const { return describe_target("delete", write); }
  std::string operator()(const EmitEvent& write) const {
    return "event " + write.reason + " about " + write.regarding.kind + " " + write.regarding.name;
  }
};

}  // namespace

ObjectReference reference_to(const ResourceType& type, const ObjectMeta& meta) {
  return {type.api_version(), std::string(type.kind), meta.namespace_, meta.name, meta.uid};
}

std::string describe(const Write& write) {
  return std::visit(Describe(), write);
}

WriteRequest to_request(const Create& write, DryRun dry_run) {
  Query query;
  query.add(write.dry_run == DryRun::yes ? DryRun::yes : dry_run);
  return {"create", "POST", write.type.path(write.namespace_) + query.text(), "application/json",
          boost::json::serialize(write.body)};
}

WriteRequest to_request(const Apply& write, DryRun dry_run) {
  return apply_request(write.type, write.key, "", write.body, write.field_manager, write.force, dry_run);
}

WriteRequest to_request(const ApplyStatus& write, DryRun dry_run) {
  return apply_request(write.type, write.key, "status", write.body, write.field_manager, write.force, dry_run);
}

WriteRequest to_request(const Patch& write, DryRun dry_run) {
  Query query;
  if (!write.field_manager.empty()) query.add("fieldManager", write.field_manager);
  query.add(dry_run);
  return {"patch", "PATCH", write.type.path(write.key, write.subresource) + query.text(),
          write.kind == PatchKind::json ? "application/json-patch+json" : "application/merge-patch+json",
          boost::json::serialize(with_preconditions(write))};
}

WriteRequest to_request(const Delete& write, DryRun dry_run) {
  json::Object options;
  options["apiVersion"] = "v1";
  options["kind"] = "DeleteOptions";
  options["propagationPolicy"] = to_string(write.propagation);
  json::Object preconditions;
  if (!write.preconditions.uid.empty()) preconditions["uid"] = write.preconditions.uid;
  if (write.preconditions.resource_version != 0) {
    preconditions["resourceVersion"] = std::to_string(write.preconditions.resource_version);
  }
  if (!preconditions.empty()) options["preconditions"] = std::move(preconditions);
  if (write.grace_period_s) options["gracePeriodSeconds"] = *write.grace_period_s;
  if (dry_run == DryRun::yes) options["dryRun"] = json::Array{"All"};
  return {"delete", "DELETE", write.type.path(write.key), "application/json", boost::json::serialize(options)};
}

}  // namespace penstock::kube
