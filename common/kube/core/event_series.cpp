#include "common/kube/core/event_series.hpp"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <utility>

#include "common/kube/model/known_types.hpp"
#include "common/time/random.hpp"

namespace penstock::kube {
namespace {

constexpr std::size_t note_bytes_max = 1024;  // the API's limit
constexpr std::size_t name_bytes_max = 200;   // of the object's name in the event's name, which may have 253

std::string cut(std::string_view text, std::size_t bytes_max) {
  std::size_t size = std::min(text.size(), bytes_max);
  while (size > 0 && size < text.size() && (static_cast<unsigned char>(text[size]) & 0xC0) == 0x80) --size;
  return std::string(text.substr(0, size));
}

json::Object to_json(const ObjectReference& object) {
  json::Object out;
  out["apiVersion"] = object.api_version;
  out["kind"] = object.kind;
  if (!object.namespace_.empty()) out["namespace"] = object.namespace_;
  out["name"] = object.name;
  out["uid"] = object.uid;
  return out;
}

}  // namespace

EventSeries::EventSeries(EventOptions options, std::uint64_t seed)
    : options_(std::move(options)), next_suffix_(Random(seed).next()) {}

bool EventSeries::admit(const ObjectReference& object, TimePoint now) {
  const auto [place, is_new] = buckets_.try_emplace(object);
  Bucket& bucket = place->second;
  if (is_new) {
    bucket = {options_.burst, now};
  } else {
    const double gained =
        static_cast<double>((now - bucket.filled).count()) / static_cast<double>(options_.refill.count());
    bucket.tokens = std::min(options_.burst, bucket.tokens + gained);
    bucket.filled = now;
  }
  if (bucket.tokens < 1) return false;
  bucket.tokens -= 1;
  return true;
}

std::optional<Write> EventSeries::record(const EmitEvent& event, TimePoint now, Timestamp wall) {
  Identity identity{event.regarding, event.type, event.reason, event.action, cut(event.note, note_bytes_max)};
  const auto found = series_.find(identity);
  if (found != series_.end() && now - found->second.last_seen_at < options_.series_end) {
    Series& series = found->second;
    ++series.count;
    series.last_seen = wall;
    series.last_seen_at = now;
    if (series.count > 2 && now - series.last_write_at < options_.update_every) return std::nullopt;
    return update(series, now);
  }
  if (!admit(event.regarding, now)) {
    ++dropped_;
    return std::nullopt;
  }
  char suffix[24];
  std::snprintf(suffix, sizeof suffix, ".%016llx", static_cast<unsigned long long>(next_suffix_++));
  Series series;
  series.key = {event.regarding.namespace_.empty() ? options_.default_namespace : event.regarding.namespace_,
                cut(event.regarding.name, name_bytes_max) + suffix};
  series.last_seen = wall;
  series.last_seen_at = series.last_write_at = now;
  Write write = create(event, series.key, wall);
  make_room();
  series_.insert_or_assign(std::move(identity), std::move(series));
  return write;
}

Write EventSeries::create(const EmitEvent& event, const Key& key, Timestamp wall) const {
  json::Object body = make_object(events, key);
  body["eventTime"] = format_micro_time(wall);
  body["reportingController"] = options_.controller;
  body["reportingInstance"] = options_.instance.empty() ? options_.controller : options_.instance;
  body["action"] = event.action.empty() ? event.reason : event.action;
  body["reason"] = event.reason;
  body["type"] = event.type == EventType::warning ? "Warning" : "Normal";
  body["note"] = cut(event.note, note_bytes_max);
  body["regarding"] = to_json(event.regarding);
  return Create{events, key.namespace_, std::move(body)};
}

Write EventSeries::update(Series& series, TimePoint now) const {
  series.written = series.count;
  series.last_write_at = now;
  json::Object counts;
  counts["count"] = series.count;
  counts["lastObservedTime"] = format_micro_time(series.last_seen);
  Patch patch;
  patch.type = events;
  patch.key = series.key;
  patch.body = json::Object{{"series", std::move(counts)}};
  return patch;
}

std::vector<Write> EventSeries::due(TimePoint now) {
  std::vector<Write> writes;
  for (auto at = series_.begin(); at != series_.end();) {
    Series& series = at->second;
    const bool over = now - series.last_seen_at >= options_.series_end;
    const bool behind = series.written < series.count;
    if (behind && (over || now - series.last_write_at >= options_.update_every)) writes.push_back(update(series, now));
    at = over ? series_.erase(at) : std::next(at);
  }
  const Duration full_again = options_.refill * static_cast<std::int64_t>(options_.burst);
  std::erase_if(buckets_, [&](const auto& entry) { return now - entry.second.filled >= full_again; });
  return writes;
}

void EventSeries::make_room() {
  while (series_.size() >= options_.series_max) {
    series_.erase(std::min_element(series_.begin(), series_.end(), [](const auto& a, const auto& b) {
      return a.second.last_seen_at < b.second.last_seen_at;
    }));
  }
  while (buckets_.size() > options_.series_max) {
    buckets_.erase(std::min_element(buckets_.begin(), buckets_.end(),
                                    [](const auto& a, const auto& b) { return a.second.filled < b.second.filled; }));
  }
}

}  // namespace penstock::kube
