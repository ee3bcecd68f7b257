#include "operator/reconcilers/writes.hpp"

#include <algorithm>

#include "operator/core/names.hpp"

namespace penstock::ctl {

void write_status(Outcome& out, const kube::ResourceType& type, const kube::ObjectMeta& meta,
                  const json::Object& before, json::Object after) {
  if (before == after) return;
  kube::ApplyStatus write;
  write.type = type;
  write.key = meta.key();
  write.body = kube::make_object(type, write.key);
  write.body["metadata"].as_object()["uid"] = meta.uid;  // never of a successor with the same name
  write.body["status"] = std::move(after);
  write.field_manager = field_manager;
  write.force = kube::Force::yes;
  out.writes.emplace_back(std::move(write));
}

void write_event(Outcome& out, const kube::ResourceType& type, const kube::ObjectMeta& meta, const Notice& notice) {
  kube::EmitEvent event;
  event.regarding = kube::reference_to(type, meta);
  event.type = notice.warning ? kube::EventType::warning : kube::EventType::normal;
  event.reason = notice.reason;
  event.action = "Reconcile";
  event.note = notice.note;
  out.writes.emplace_back(std::move(event));
}

void write_child(Outcome& out, const Stores& stores, Desired desired) {
  const kube::ObjectMeta* existing = nullptr;
  if (desired.type == kube::deployments) {
    if (const auto* found = stores.deployments.find(desired.key)) existing = &found->meta;
  } else if (const auto* store = stores.children_of(desired.type)) {
    if (const auto* found = store->find(desired.key)) existing = &found->meta;
  } else {
    return;  // the cluster doesn't serve this kind
  }
  if (existing != nullptr && existing->annotations.get(annotation::desired) == desired_hash(desired)) return;
  if (existing != nullptr && existing->deleted) return;  // made again once it is gone
  out.writes.push_back(apply(std::move(desired), existing));
}

void write_delete(Outcome& out, const kube::ResourceType& type, const kube::ObjectMeta& meta) {
  kube::Delete write;
  write.type = type;
  write.key = meta.key();
  write.preconditions.uid = meta.uid;
  out.writes.emplace_back(std::move(write));
}

void prune(Outcome& out, const Stores& stores, const kube::ResourceType& type, std::string_view owner_uid,
           const std::vector<Desired>& desired) {
  const auto* store = stores.children_of(type);
  if (store == nullptr) return;
  for (const auto* child : store->owned_by(owner_uid)) {
    const bool wanted = std::any_of(desired.begin(), desired.end(), [&](const Desired& one) {
      return one.type == type && one.key == child->meta.key();
    });
    if (!wanted && !child->meta.deleted) write_delete(out, type, child->meta);
  }
}

namespace {

/// A pod that was tried and not taken for what it is. That this program may make no pods, or that a new namespace has
/// no account yet, says nothing about the template.
bool is_about_the_template(const WriteFailure& failure) {
  if (!failure.of_dry_run) return false;
  const kube::ApiStatus& status = failure.status;
  if (status.is(kube::Failure::bad_request) || status.is(kube::Failure::invalid)) return true;
  return status.is(kube::Failure::forbidden) && status.message.find("cannot create resource") == std::string::npos &&
         status.message.find("looking up service account") == std::string::npos;
}

}  // namespace

Problem refusal_of(const Context& context) {
  if (!context.last_failure || is_about_the_template(*context.last_failure)) return {};
  const kube::ApiStatus& status = context.last_failure->status;
  switch (status.failure()) {
    case kube::Failure::bad_request:
    case kube::Failure::invalid:
      return {"PodRejected", kube::to_string(status) + ". Correct the field that it names."};
    case kube::Failure::forbidden:
      if (kube::is_quota(status)) {
        return {"QuotaExceeded", kube::to_string(status) + ". Raise the ResourceQuota, or want fewer groups."};
      }
      return {"Forbidden", kube::to_string(status) + ". An admission rule or RBAC says no."};
    case kube::Failure::not_found:
      return {"NotServed", kube::to_string(status)};
    case kube::Failure::no_answer:
    case kube::Failure::unauthorized:
    case kube::Failure::already_exists:
    case kube::Failure::conflict:
    case kube::Failure::gone:
    case kube::Failure::too_new:
    case kube::Failure::too_many_requests:
    case kube::Failure::server:
      return {};
  }
  return {};
}

std::optional<Problem> trial_refusal_of(const Context& context) {
  if (!context.last_failure || !is_about_the_template(*context.last_failure)) return std::nullopt;
  const kube::ApiStatus& status = context.last_failure->status;
  return Problem{"TemplateRejected",
                 kube::to_string(status) + ". Correct the field that it names; what runs now goes on."};
}

}  // namespace penstock::ctl
