#include "common/kube/core/reflector.hpp"

#include "common/json/parse_into.hpp"

namespace penstock::kube {
namespace {

constexpr std::size_t arena_bytes = 64 << 10;
constexpr std::string_view initial_end_annotation = "k8s.io/initial-events-end";

json::Limits object_limits() {
  json::Limits limits;
  limits.keys_max = 200'000;  // managedFields of a large object
  return limits;
}

ApiStatus unreadable(const Error& error) {
  ApiStatus status;
  status.code = 500;
  status.message = error.message;
  return status;
}

}  // namespace

Reflector::Reflector(WatchOptions options, CacheSink& sink, std::uint64_t seed, ReflectorObserver observer)
    : machine_(std::move(options), seed),
      sink_(sink),
      observer_(std::move(observer)),
      splitter_(ObjectSplitter::Shape::events),
      arena_bytes_(arena_bytes) {}

WatchStep Reflector::next(TimePoint now) {
  WatchStep step = machine_.next(now);
  const auto* request = std::get_if<WatchRequest>(&step);
  if (request == nullptr) return step;
  request_ = request->kind;
  splitter_ =
      ObjectSplitter(request_ == RequestKind::list_page ? ObjectSplitter::Shape::list : ObjectSplitter::Shape::events);
  if (request->begins_replace) {
    sink_.begin_replace();
    replacing_ = true;
  }
  return step;
}

bool Reflector::on_bytes(std::string_view bytes, TimePoint now) {
  while (true) {
    auto piece = splitter_.next(bytes);
    if (!piece) return refuse(piece.error(), now);
    if (!*piece) return true;
    if (!on_piece(**piece, now)) return false;
  }
}

/// What comes makes no sense any more: as if the server had failed.
bool Reflector::refuse(const Error& error, TimePoint now) {
  on_failed(unreadable(error), now);
  return false;
}

void Reflector::on_failed(const ApiStatus& status, TimePoint now) {
  machine_.on_failed(status, now);
  after_step();
}

void Reflector::on_end(StreamEnd end, TimePoint now) {
  // A proper end within an object, or of a list without its end, is none.
  const bool cut = end == StreamEnd::closed && !splitter_.at_boundary();
  machine_.on_end(cut ? StreamEnd::broken : end, now);
  after_step();
}

void Reflector::after_step() {
  if (replacing_ && !machine_.staging()) {
    sink_.abandon_replace();
    replacing_ = false;
  }
  const std::optional<Restart> restart = machine_.take_restart();
  if (restart && observer_.on_restart) observer_.on_restart(*restart);
}

void Reflector::passed_over(const Error& error) {
  if (observer_.on_bad_object) observer_.on_bad_object(error);
}

bool Reflector::on_piece(const ObjectSplitter::Piece& piece, TimePoint now) {
  switch (piece.kind) {
    case ObjectSplitter::Piece::Kind::envelope:
      return on_envelope(piece.text, now);
    case ObjectSplitter::Piece::Kind::oversized:
      passed_over(make_error(ErrorCode::resource_exhausted, "an object is larger than any that the API stores"));
      return true;
    case ObjectSplitter::Piece::Kind::object:
      break;
  }
  boost::json::monotonic_resource arena(arena_bytes_.data(), arena_bytes_.size());
  const auto parsed = json::parse_into(managed_fields_.without(piece.text), object_limits(), &arena);
  const json::Object* object = parsed ? parsed->if_object() : nullptr;
  if (object == nullptr) {
    passed_over(parsed ? make_error(ErrorCode::data_loss, "not an object") : parsed.error());
    return true;
  }
  if (request_ != RequestKind::list_page) return on_stream_event(*object, now);
  apply(Effect::stage, *object);
  return true;
}

bool Reflector::on_stream_event(const json::Object& event, TimePoint now) {
  const std::string_view type = text_at(event, {"type"}).value_or(std::string_view());
  const json::Object* object = object_at(event, {"object"});
  if (type == "ERROR") {
    on_failed(object == nullptr ? ApiStatus() : parse_status(*object), now);
    return false;
  }
  if (object == nullptr) {
    passed_over(make_error(ErrorCode::data_loss, "an event without an object"));
    return true;
  }
  const std::string_view version = text_at(*object, {"metadata", "resourceVersion"}).value_or(std::string_view());
  const bool ends_initial = text_at(*object, {"metadata", "annotations", initial_end_annotation}) == "true";
  apply(machine_.on_event(parse_event_kind(type), version, ends_initial, now), *object);
  return true;
}

bool Reflector::on_envelope(std::string_view text, TimePoint now) {
  const auto parsed = json::parse(text);
  const json::Object* list = parsed ? parsed->if_object() : nullptr;
  if (list == nullptr) return refuse(make_error(ErrorCode::data_loss, "the list is not JSON"), now);
  const auto version = text_at(*list, {"metadata", "resourceVersion"});
  if (!version || version->empty()) return refuse(make_error(ErrorCode::data_loss, "the list has no version"), now);
  const auto token = text_at(*list, {"metadata", "continue"}).value_or(std::string_view());
  apply(machine_.on_page(*version, token), *list);
  return true;
}

void Reflector::apply(Effect effect, const json::Object& object) {
  Result<void> done;
  switch (effect) {
    case Effect::none:
      break;
    case Effect::stage:
      done = sink_.stage(object);
      break;
    case Effect::unstage:
      sink_.unstage(object);
      break;
    case Effect::upsert:
      done = sink_.upsert(object);
      break;
    case Effect::erase:
      sink_.erase(object);
      break;
    case Effect::advance:
      sink_.advance(parse_version(machine_.version()));
      break;
    case Effect::commit:
      replacing_ = false;
      sink_.commit_replace(parse_version(machine_.version()));
      if (observer_.on_synced) observer_.on_synced();
      break;
  }
  if (!done) passed_over(done.error());
}

}  // namespace penstock::kube
