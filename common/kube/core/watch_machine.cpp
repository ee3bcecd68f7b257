#include "common/kube/core/watch_machine.hpp"

#include <utility>

#include "common/kube/model/resource_type.hpp"

namespace penstock::kube {
namespace {

constexpr unsigned bookmarks_missed_max = 2;
constexpr unsigned short_streams_max = 3;

}  // namespace

EventKind parse_event_kind(std::string_view text) {
  if (text == "ADDED") return EventKind::added;
  if (text == "MODIFIED") return EventKind::modified;
  if (text == "DELETED") return EventKind::deleted;
  if (text == "BOOKMARK") return EventKind::bookmark;
  return EventKind::unknown;
}

std::string_view to_string(Restart reason) {
  switch (reason) {
    case Restart::expired:
      return "expired";
    case Restart::short_watch:
      return "short_watch";
    case Restart::broken:
      return "broken";
    case Restart::overdue:
      return "overdue";
    case Restart::no_bookmark:
      return "no_bookmark";
    case Restart::gone:
      return "gone";
    case Restart::too_new:
      return "too_new";
    case Restart::too_many_requests:
      return "too_many_requests";
    case Restart::rejected:
      return "rejected";
    case Restart::server:
      return "server";
  }
  return "?";
}

WatchMachine::WatchMachine(WatchOptions options, std::uint64_t seed)
    : options_(std::move(options)),
      random_(seed),
      backoff_(options_.backoff),
      streaming_works_(options_.first_list == FirstList::streamed) {}

WatchStep WatchMachine::next(TimePoint now) {
  if (now < retry_at_) return WaitUntil{retry_at_};
  progressed_ = false;
  started_ = now;
  WatchRequest request;
  if (!listing_) {
    request = stream_request(RequestKind::watch);
  } else if (streaming_works_ && !skip_streaming_) {
    request = stream_request(RequestKind::streamed_list);
    request.begins_replace = true;
    staging_ = true;
  } else {
    request = list_request();
    request.begins_replace = continue_token_.empty();
    staging_ = true;
  }
  request_ = request.kind;
  return request;
}

std::string WatchMachine::selectors() const {
  std::string text;
  if (!options_.label_selector.empty()) text += "&labelSelector=" + percent_encode(options_.label_selector);
  if (!options_.field_selector.empty()) text += "&fieldSelector=" + percent_encode(options_.field_selector);
  return text;
}

/// Empty asks for the newest state. A streamed list costs the server little even so; a plain one is first asked of
/// whatever the server has at hand.
std::string WatchMachine::list_version() const {
  switch (freshness_) {
    case Freshness::any:
      return streaming_works_ && !skip_streaming_ ? "" : "0";
    case Freshness::known:
      return version_;
    case Freshness::quorum:
      return "";
  }
  return "";
}

WatchRequest WatchMachine::list_request() {
  WatchRequest request;
  request.kind = RequestKind::list_page;
  request.timeout = request.silence_max = options_.list_timeout;
  if (!continue_token_.empty()) {
    // A continued list takes its version from the token; naming one is refused.
    request.query = "limit=" + std::to_string(options_.page_objects) + "&continue=" + percent_encode(continue_token_);
  } else if (freshness_ == Freshness::quorum && paging_) {
    request.query = "limit=" + std::to_string(options_.page_objects);
  } else {
    request.query = "resourceVersion=" + percent_encode(list_version());
  }
  request.query += selectors();
  return request;
}

WatchRequest WatchMachine::stream_request(RequestKind kind) {
  const auto at_least = std::chrono::duration_cast<std::chrono::seconds>(options_.watch_min).count();
  const auto at_most = std::chrono::duration_cast<std::chrono::seconds>(options_.watch_max).count();
  const auto spread = static_cast<std::uint64_t>(at_most - at_least) + 1;
  const auto seconds = at_least + static_cast<std::int64_t>(random_.below(spread));
  WatchRequest request;
  request.kind = kind;
  request.timeout = std::chrono::seconds(seconds) + options_.watch_margin;
  request.silence_max = request.timeout;
  request.query = "watch=true&allowWatchBookmarks=true&timeoutSeconds=" + std::to_string(seconds);
  if (kind == RequestKind::streamed_list) {
    request.silence_max = options_.first_event_wait;
    request.query +=
        "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=" + percent_encode(list_version());
  } else {
    request.query += "&resourceVersion=" + percent_encode(version_);
  }
  request.query += selectors();
  return request;
}

void WatchMachine::relist(Freshness freshness) {
  listing_ = true;
  staging_ = false;
  continue_token_.clear();
  freshness_ = freshness == Freshness::known && version_.empty() ? Freshness::quorum : freshness;
}

void WatchMachine::retry(Restart reason, TimePoint now, std::optional<Duration> at_least) {
  restart_ = reason;
  retry_at_ = now + backoff_.next(now, random_, at_least);
}

void WatchMachine::on_failed(const ApiStatus& status, TimePoint now) {
  last_failure_ = status;
  // A broken stream of events starts anew; a broken page is asked for again and staged over itself.
  if (request_ == RequestKind::streamed_list && listing_) staging_ = false;
  switch (status.failure()) {
    case Failure::gone:
      return on_gone(now);
    case Failure::too_new:
      relist(Freshness::quorum);
      return retry(Restart::too_new, now, status.retry_after);
    case Failure::too_many_requests:
      return retry(Restart::too_many_requests, now, status.retry_after);
    case Failure::server:
      return retry(Restart::server, now, status.retry_after);
    case Failure::no_answer:
      return retry(Restart::broken, now);
    case Failure::bad_request:
    case Failure::invalid:
    case Failure::forbidden:
    case Failure::unauthorized:
    case Failure::not_found:
    case Failure::already_exists:
    case Failure::conflict:
      return on_rejected(status, now);
  }
}

void WatchMachine::on_gone(TimePoint now) {
  if (!listing_) {
    relist(Freshness::known);
  } else if (!continue_token_.empty()) {
    relist(Freshness::quorum);
    paging_ = false;  // pages expire faster than we read them: take all in one go
  } else {
    relist(Freshness::quorum);
  }
  retry(Restart::gone, now);
}

void WatchMachine::on_rejected(const ApiStatus& status, TimePoint now) {
  const bool may_be_parameters =
      status.is(Failure::bad_request) || status.is(Failure::invalid) || status.is(Failure::forbidden);
  if (listing_ && request_ == RequestKind::streamed_list && may_be_parameters) {
    relist(freshness_);
    streaming_works_ = false;
    return retry_now(Restart::rejected);  // at once, by a plain list
  }
  if (listing_) {
    relist(freshness_);
    // The plain list is refused as well: it was not the parameters.
    streaming_works_ = options_.first_list == FirstList::streamed;
  } else if (status.is(Failure::bad_request) || status.is(Failure::invalid)) {
    relist(Freshness::quorum);  // the version we resume from may be what the server can't read
  }
  retry(Restart::rejected, now, status.retry_after);
}

Effect WatchMachine::on_event(EventKind kind, std::string_view version, bool ends_initial, TimePoint) {
  if (listing_) {
    switch (kind) {
      case EventKind::added:
      case EventKind::modified:
        return Effect::stage;
      case EventKind::deleted:
        return Effect::unstage;
      case EventKind::bookmark:
        if (!ends_initial || version.empty()) return Effect::none;
        version_ = version;
        listing_ = staging_ = false;
        bookmarks_missed_ = 0;
        skip_streaming_ = false;
        progressed_ = true;
        last_failure_.reset();
        return Effect::commit;
      case EventKind::unknown:
        return Effect::none;
    }
  }
  if (kind == EventKind::unknown) return Effect::none;
  if (!version.empty() && version != version_) {
    version_ = version;
    progressed_ = true;
    last_failure_.reset();
  }
  switch (kind) {
    case EventKind::added:
    case EventKind::modified:
      return Effect::upsert;
    case EventKind::deleted:
      return Effect::erase;
    case EventKind::bookmark:
      return Effect::advance;
    case EventKind::unknown:
      break;
  }
  return Effect::none;
}

Effect WatchMachine::on_page(std::string_view version, std::string_view continue_token) {
  continue_token_ = continue_token;
  if (!continue_token_.empty()) return Effect::none;
  version_ = version;
  listing_ = staging_ = false;
  skip_streaming_ = false;
  paging_ = true;
  last_failure_.reset();
  return Effect::commit;
}

void WatchMachine::on_end(StreamEnd end, TimePoint now) {
  if (request_ == RequestKind::list_page) {
    // A page that did not come whole is asked for again.
    if (listing_ && end != StreamEnd::closed) retry(Restart::broken, now);
    return;
  }
  if (listing_) {
    staging_ = false;
    if (end != StreamEnd::silent) return retry(Restart::broken, now);
    // A server that never says when the initial events end: list plainly this time, always if it happens again.
    skip_streaming_ = true;
    if (++bookmarks_missed_ >= bookmarks_missed_max) streaming_works_ = false;
    return retry_now(Restart::no_bookmark);
  }
  switch (end) {
    case StreamEnd::closed: {
      const bool short_stream = now - started_ < options_.short_watch;
      short_streams_ = short_stream ? short_streams_ + 1 : 0;
      if (short_stream && (!progressed_ || short_streams_ > short_streams_max)) return retry(Restart::short_watch, now);
      return retry_now(Restart::expired);
    }
    case StreamEnd::broken:
      return retry(Restart::broken, now);
    case StreamEnd::silent:
    case StreamEnd::overdue:
      return retry(Restart::overdue, now);
  }
}

}  // namespace penstock::kube
