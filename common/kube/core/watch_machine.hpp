// Decides how a cache is kept equal to the API server: which request to make next, what each answer and each event
// means and how long to wait after a failure. A streamed list first, a paged one where the server can't; then a watch,
// resumed where the last one ended. It holds no objects: the Reflector carries out its effects. Pure; one owner. Every
// wait and every loop of requests is bounded by the Backoff.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "common/kube/core/backoff.hpp"
#include "common/kube/model/status.hpp"
#include "common/time/clock.hpp"
#include "common/time/random.hpp"

namespace penstock::kube {

enum class FirstList : std::uint8_t { streamed, paged };

struct WatchOptions {
  std::string label_selector;
  std::string field_selector;
  FirstList first_list = FirstList::streamed;
  std::size_t page_objects = 500;
  Duration watch_min = std::chrono::seconds(300);  // what the server is asked for, drawn between the two
  Duration watch_max = std::chrono::seconds(600);
  Duration watch_margin = std::chrono::seconds(10);      // the client's own deadline is that much later
  Duration first_event_wait = std::chrono::seconds(10);  // longest silence in a streamed list
  Duration list_timeout = std::chrono::seconds(60);      // of one page
  Duration short_watch = std::chrono::seconds(1);        // a watch that ends sooner, with nothing new, is a failure
  BackoffOptions backoff;
};

enum class RequestKind : std::uint8_t { list_page, streamed_list, watch };

struct WatchRequest {
  RequestKind kind = RequestKind::watch;
  std::string query;    // "watch=true&..."
  Duration timeout{0};  // of the whole answer
  Duration silence_max{0};
  bool begins_replace = false;
};
struct WaitUntil {
  TimePoint time;
};
using WatchStep = std::variant<WatchRequest, WaitUntil>;

enum class EventKind : std::uint8_t { added, modified, deleted, bookmark, unknown };
EventKind parse_event_kind(std::string_view text);

/// What to do with an event's object.
enum class Effect : std::uint8_t { none, stage, unstage, upsert, erase, advance, commit };

enum class StreamEnd : std::uint8_t {
  closed,   // properly, by the server
  broken,   // in the middle of something, or a failure of the transport
  silent,   // nothing came for silence_max
  overdue,  // the whole timeout is over
};

/// Why a watch or a list had to be made again; a label of a metric.
enum class Restart : std::uint8_t {
  expired,            // the server ended it as asked
  short_watch,        // it ended at once
  broken,             // transport
  overdue,            // silent for too long: half-open
  no_bookmark,        // the streamed list never said that it was complete
  gone,               // 410
  too_new,            // a server that is behind, or was restored
  too_many_requests,  // 429
  rejected,           // 4xx
  server,             // 5xx
};
inline constexpr std::size_t restart_count = 10;
std::string_view to_string(Restart reason);

class WatchMachine {
 public:
  WatchMachine(WatchOptions options, std::uint64_t seed);

  /// What to do now. Asks for one request at a time: tell its end before calling again.
  WatchStep next(TimePoint now);

  /// The request failed before or instead of its content, or an ERROR event came in it (then cut the connection).
  void on_failed(const ApiStatus& status, TimePoint now);
  /// An event of a watch or of a streamed list; `version` may be empty if the object could not be read.
  Effect on_event(EventKind kind, std::string_view version, bool ends_initial, TimePoint now);
  /// A page of a list is complete.
  Effect on_page(std::string_view version, std::string_view continue_token);
  /// The answer to the request is over.
  void on_end(StreamEnd end, TimePoint now);

  bool staging() const { return staging_; }
  /// The last resource version seen; what a watch resumes from.
  const std::string& version() const { return version_; }
  /// Why the last request had to be repeated; taken once.
  std::optional<Restart> take_restart() { return std::exchange(restart_, std::nullopt); }
  const std::optional<ApiStatus>& last_failure() const { return last_failure_; }

 private:
  /// How fresh a list must be.
  enum class Freshness : std::uint8_t {
    any,     // what a server has at hand: the first list only
    known,   // not older than what we have seen
    quorum,  // the newest, from the storage
  };

  WatchRequest list_request();
  WatchRequest stream_request(RequestKind kind);
  std::string selectors() const;
  std::string list_version() const;
  void relist(Freshness freshness);
  void retry(Restart reason, TimePoint now, std::optional<Duration> at_least = {});
  void retry_now(Restart reason) { restart_ = reason; }
  void on_gone(TimePoint now);
  void on_rejected(const ApiStatus& status, TimePoint now);

  WatchOptions options_;
  Random random_;
  Backoff backoff_;
  RequestKind request_ = RequestKind::watch;
  std::string version_;
  std::string continue_token_;
  Freshness freshness_ = Freshness::any;
  bool listing_ = true;  // a list is needed before the next watch
  bool staging_ = false;
  bool paging_ = true;             // a quorum list is asked for in pages
  bool streaming_works_ = true;    // until the server refuses it
  bool skip_streaming_ = false;    // for this list only
  unsigned bookmarks_missed_ = 0;  // streamed lists in a row that never ended
  unsigned short_streams_ = 0;     // in a row
  bool progressed_ = false;        // something new came in this stream
  TimePoint started_{};
  TimePoint retry_at_{};
  std::optional<Restart> restart_;
  std::optional<ApiStatus> last_failure_;
};

}  // namespace penstock::kube
