// What a reconcile wants changed, as values: returned by pure code, carried out by kube::Client or a model API server.
// Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "common/json/json.hpp"
#include "common/kube/model/object_meta.hpp"
#include "common/kube/model/resource_type.hpp"

namespace penstock::kube {

enum class DryRun : std::uint8_t { no, yes };

/// POST. 409 AlreadyExists is an answer that the caller expects. A dry run asks whether it would be taken.
struct Create {
  ResourceType type;
  std::string namespace_;
  json::Object body;
  DryRun dry_run = DryRun::no;
};

/// Whether server-side apply takes fields from other managers. Only for fields that we alone own.
enum class Force : std::uint8_t { no, yes };

/// Server-side apply of a whole intent. A `metadata.uid` in the body keeps it from making a deleted object anew.
struct Apply {
  ResourceType type;
  Key key;
  json::Object body;
  std::string field_manager;
  Force force = Force::no;
};

/// Server-side apply of the status subresource; `body` has apiVersion, kind, metadata and status.
struct ApplyStatus {
  ResourceType type;
  Key key;
  json::Object body;
  std::string field_manager;
  Force force = Force::no;
};

/// A write that must meet the object as it was seen, else 409. A JSON patch, or one of another uid, gives 422.
struct Preconditions {
  std::string uid;                     // "" is any
  std::uint64_t resource_version = 0;  // 0 is any
};

enum class PatchKind : std::uint8_t {
  merge,  // RFC 7396; preconditions become metadata.uid and metadata.resourceVersion of the patch
  json,   // RFC 6902, an array; preconditions become tests at its head
};

struct Patch {
  ResourceType type;
  Key key;
  std::string_view subresource;  // a literal: "", "status", "scale"
  PatchKind kind = PatchKind::merge;
  json::Value body;
  Preconditions preconditions;
  std::string field_manager;
};

enum class Propagation : std::uint8_t { background, foreground, orphan };

struct Delete {
  ResourceType type;
  Key key;
  Preconditions preconditions;  // give the uid, always
  Propagation propagation = Propagation::background;
  std::optional<std::int64_t> grace_period_s;
};

enum class EventType : std::uint8_t { normal, warning };

struct ObjectReference {
  std::string api_version;
  std::string kind;
  std::string namespace_;
  std::string name;
  std::string uid;
  friend auto operator<=>(const ObjectReference&, const ObjectReference&) = default;
};
ObjectReference reference_to(const ResourceType& type, const ObjectMeta& meta);

/// An event about an object. Best effort: repeats are counted in a series, floods are dropped, failures don't matter.
struct EmitEvent {
  ObjectReference regarding;
  EventType type = EventType::normal;
  std::string reason;  // CamelCase, why: "GroupRestarting"
  std::string action;  // CamelCase, what was done: "Restart"
  std::string note;    // for people; cut at 1 KiB
};

using Write = std::variant<Create, Apply, ApplyStatus, Patch, Delete, EmitEvent>;

/// "apply Pod a/b", for logs.
std::string describe(const Write& write);

/// The request that carries out a write; shared by the client and tests. Not for EmitEvent, which goes to a Recorder.
struct WriteRequest {
  std::string_view verb;    // for metrics: "create", "apply", "patch", "delete"
  std::string_view method;  // "POST"
  std::string target;       // path and query
  std::string_view content_type;
  std::string body;
};
WriteRequest to_request(const Create& write, DryRun dry_run = DryRun::no);
WriteRequest to_request(const Apply& write, DryRun dry_run = DryRun::no);
WriteRequest to_request(const ApplyStatus& write, DryRun dry_run = DryRun::no);
WriteRequest to_request(const Patch& write, DryRun dry_run = DryRun::no);
WriteRequest to_request(const Delete& write, DryRun dry_run = DryRun::no);

}  // namespace penstock::kube
