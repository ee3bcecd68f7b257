// What a watch does next, case by case.
#include "common/kube/core/watch_machine.hpp"

#include <gtest/gtest.h>

#include <set>
#include <utility>

namespace penstock::kube {
namespace {

using namespace std::chrono_literals;

ApiStatus failed(int code, std::string reason = "") {
  ApiStatus status;
  status.code = code;
  status.reason = std::move(reason);
  return status;
}

/// Walks a machine through a script, moving time over its waits.
struct Walk {
  explicit Walk(WatchOptions options = {}) : machine(std::move(options), 1) {}

  WatchRequest request() {
    for (int i = 0; i < 10; ++i) {
      WatchStep step = machine.next(now);
      if (auto* made = std::get_if<WatchRequest>(&step)) return *made;
      waited += std::get<WaitUntil>(step).time - now;
      now = std::get<WaitUntil>(step).time;
    }
    ADD_FAILURE() << "ten waits in a row";
    return {};
  }
  /// A streamed list that ends well at this version.
  void sync(std::string_view version = "10") {
    request();
    machine.on_event(EventKind::added, "9", false, now);
    EXPECT_EQ(machine.on_event(EventKind::bookmark, version, true, now), Effect::commit);
    machine.take_restart();
  }
  Duration take_wait() { return std::exchange(waited, Duration(0)); }

  WatchMachine machine;
  TimePoint now{1h};
  Duration waited{0};
};

bool has(const WatchRequest& request, std::string_view part) {
  return ("&" + request.query + "&").find("&" + std::string(part) + "&") != std::string::npos;
}
bool has_key(const WatchRequest& request, std::string_view key) {
  return ("&" + request.query).find("&" + std::string(key) + "=") != std::string::npos;
}

TEST(WatchMachine, StartsWithAStreamedList) {
  WatchOptions options;
  options.label_selector = "app.kubernetes.io/managed-by=penstock";
  Walk walk(options);
  const WatchRequest request = walk.request();
  EXPECT_EQ(request.kind, RequestKind::streamed_list);
  EXPECT_TRUE(request.begins_replace);
  EXPECT_TRUE(has(request, "sendInitialEvents=true"));
  EXPECT_TRUE(has(request, "resourceVersionMatch=NotOlderThan"));
  EXPECT_TRUE(has(request, "resourceVersion="));
  EXPECT_TRUE(has(request, "allowWatchBookmarks=true"));
  EXPECT_TRUE(has(request, "labelSelector=app.kubernetes.io%2Fmanaged-by%3Dpenstock"));
  EXPECT_EQ(request.silence_max, Duration(10s));
}

TEST(WatchMachine, StagesUntilTheBookmarkThatEndsTheList) {
  Walk walk;
  walk.request();
  EXPECT_EQ(walk.machine.on_event(EventKind::added, "7", false, walk.now), Effect::stage);
  EXPECT_EQ(walk.machine.version(), "") << "versions of the first burst are not to be resumed from";
  EXPECT_EQ(walk.machine.on_event(EventKind::deleted, "8", false, walk.now), Effect::unstage);
  EXPECT_EQ(walk.machine.on_event(EventKind::bookmark, "8", false, walk.now), Effect::none);
  EXPECT_EQ(walk.machine.on_event(EventKind::bookmark, "9", true, walk.now), Effect::commit);
  EXPECT_EQ(walk.machine.on_event(EventKind::modified, "11", false, walk.now), Effect::upsert);
  EXPECT_EQ(walk.machine.on_event(EventKind::deleted, "12", false, walk.now), Effect::erase);
  EXPECT_EQ(walk.machine.on_event(EventKind::bookmark, "20", false, walk.now), Effect::advance);
  EXPECT_EQ(walk.machine.on_event(EventKind::unknown, "99", false, walk.now), Effect::none);
  EXPECT_EQ(walk.machine.version(), "20");
}

TEST(WatchMachine, ResumesWhereTheLastWatchEnded) {
  Walk walk;
  walk.sync("10");
  walk.machine.on_event(EventKind::modified, "12", false, walk.now);
  walk.now += 400s;
  walk.machine.on_end(StreamEnd::closed, walk.now);
  const WatchRequest request = walk.request();
  EXPECT_EQ(request.kind, RequestKind::watch);
  EXPECT_TRUE(has(request, "resourceVersion=12"));
  EXPECT_FALSE(has_key(request, "resourceVersionMatch"));
  EXPECT_FALSE(has_key(request, "sendInitialEvents"));
  EXPECT_EQ(walk.take_wait(), Duration(0));
  EXPECT_EQ(walk.machine.take_restart(), Restart::expired);
}

TEST(WatchMachine, WatchTimesAreDrawnAndTheOwnDeadlineIsLater) {
  Walk walk;
  walk.sync();
  std::set<std::int64_t> seen;
  for (int i = 0; i < 20; ++i) {
    walk.now += 60s;
    walk.machine.on_end(StreamEnd::closed, walk.now);
    const WatchRequest request = walk.request();
    const std::size_t at = request.query.find("timeoutSeconds=") + 15;
    const std::int64_t seconds = std::stoll(request.query.substr(at));
    EXPECT_GE(seconds, 300);
    EXPECT_LE(seconds, 600);
    EXPECT_EQ(request.timeout, std::chrono::seconds(seconds) + 10s);
    seen.insert(seconds);
  }
  EXPECT_GT(seen.size(), 5u);
}

TEST(WatchMachine, FallsBackToAListWhenTheServerKnowsNoStreamedOne) {
  for (const int code : {400, 403, 422}) {
    Walk walk;
    walk.request();
    walk.machine.on_failed(failed(code), walk.now);
    const WatchRequest request = walk.request();
    EXPECT_EQ(request.kind, RequestKind::list_page);
    EXPECT_TRUE(request.begins_replace);
    EXPECT_EQ(walk.take_wait(), Duration(0)) << "at once";
    EXPECT_TRUE(has(request, "resourceVersion=0"));
    EXPECT_FALSE(has_key(request, "limit"));
    EXPECT_FALSE(has_key(request, "sendInitialEvents"));
    EXPECT_EQ(walk.machine.on_page("33", ""), Effect::commit);
    walk.machine.on_end(StreamEnd::closed, walk.now);
    EXPECT_TRUE(has(walk.request(), "resourceVersion=33"));
  }
}

TEST(WatchMachine, TriesStreamsAgainWhenThePlainListIsForbiddenToo) {
  Walk walk;
  walk.request();
  walk.machine.on_failed(failed(403), walk.now);
  EXPECT_EQ(walk.request().kind, RequestKind::list_page);
  walk.machine.on_failed(failed(403), walk.now);
  EXPECT_EQ(walk.request().kind, RequestKind::streamed_list);
  EXPECT_GT(walk.take_wait(), Duration(0)) << "but not in a hot loop";
}

TEST(WatchMachine, ListsPlainlyWhenTheBookmarkNeverComes) {
  Walk walk;
  for (const RequestKind wanted : {RequestKind::streamed_list, RequestKind::streamed_list, RequestKind::list_page}) {
    WatchRequest request = walk.request();
    ASSERT_EQ(request.kind, wanted);
    if (wanted == RequestKind::streamed_list) {
      walk.machine.on_end(StreamEnd::silent, walk.now);
      EXPECT_EQ(walk.machine.take_restart(), Restart::no_bookmark);
      EXPECT_FALSE(walk.machine.staging());
      request = walk.request();
    }
    ASSERT_EQ(request.kind, RequestKind::list_page) << "this time";
    walk.machine.on_page("5", "");
    walk.machine.on_end(StreamEnd::closed, walk.now);
    walk.request();
    walk.machine.on_failed(failed(410), walk.now);
  }
}

TEST(WatchMachine, GoneRelistsAtTheKnownVersionThenFromTheStorage) {
  Walk walk;
  walk.sync("10");
  walk.machine.on_failed(failed(410, "Expired"), walk.now);
  WatchRequest request = walk.request();
  EXPECT_EQ(request.kind, RequestKind::streamed_list);
  EXPECT_TRUE(has(request, "resourceVersion=10"));
  EXPECT_EQ(walk.machine.take_restart(), Restart::gone);
  walk.machine.on_failed(failed(410, "Expired"), walk.now);
  request = walk.request();
  EXPECT_TRUE(has(request, "resourceVersion="));
  EXPECT_GT(walk.take_wait(), Duration(0));
}

TEST(WatchMachine, AVersionThatIsTooNewMeansTheStorage) {
  WatchOptions options;
  options.first_list = FirstList::paged;
  Walk walk(options);
  walk.request();
  walk.machine.on_page("1000", "");
  walk.machine.on_end(StreamEnd::closed, walk.now);
  walk.request();
  ApiStatus status = failed(504, "Timeout");
  status.causes.push_back({"ResourceVersionTooLarge", "", ""});
  walk.machine.on_failed(status, walk.now);
  const WatchRequest request = walk.request();
  EXPECT_EQ(request.kind, RequestKind::list_page);
  EXPECT_FALSE(has_key(request, "resourceVersion"));
  EXPECT_TRUE(has(request, "limit=500"));
  EXPECT_EQ(walk.machine.on_page("40", ""), Effect::commit);
  EXPECT_EQ(walk.machine.version(), "40") << "back in time, as the server is";
}

TEST(WatchMachine, PagesContinueAndAnExpiredTokenTakesAllInOneGo) {
  WatchOptions options;
  options.first_list = FirstList::paged;
  Walk walk(options);
  walk.request();
  walk.machine.on_failed(failed(410), walk.now);  // even "0" is gone: ask the storage, in pages
  EXPECT_TRUE(has(walk.request(), "limit=500"));
  EXPECT_EQ(walk.machine.on_page("50", "tok/en"), Effect::none);
  walk.machine.on_end(StreamEnd::closed, walk.now);
  WatchRequest request = walk.request();
  EXPECT_TRUE(has(request, "continue=tok%2Fen"));
  EXPECT_FALSE(request.begins_replace);
  EXPECT_FALSE(has_key(request, "resourceVersion"));
  walk.machine.on_end(StreamEnd::broken, walk.now);
  EXPECT_TRUE(has(walk.request(), "continue=tok%2Fen")) << "the same page again";
  walk.machine.on_failed(failed(410), walk.now);
  EXPECT_FALSE(walk.machine.staging());
  request = walk.request();
  EXPECT_TRUE(request.begins_replace);
  EXPECT_FALSE(has_key(request, "limit"));
  EXPECT_FALSE(has_key(request, "continue"));
}

TEST(WatchMachine, OverloadWaitsAsAskedAndKeepsItsPlace) {
  Walk walk;
  walk.sync("10");
  ApiStatus status = failed(429);
  status.retry_after = 7s;
  walk.machine.on_failed(status, walk.now);
  const WatchRequest request = walk.request();
  EXPECT_TRUE(has(request, "resourceVersion=10"));
  EXPECT_EQ(request.kind, RequestKind::watch);
  EXPECT_GE(walk.take_wait(), Duration(7s));
  walk.machine.on_failed(failed(500), walk.now);
  EXPECT_EQ(walk.request().kind, RequestKind::watch);
}

TEST(WatchMachine, AWatchThatEndsAtOnceIsAFailure) {
  Walk walk;
  walk.sync("10");
  walk.now += 60s;
  walk.machine.on_end(StreamEnd::closed, walk.now);
  walk.request();
  EXPECT_EQ(walk.take_wait(), Duration(0));
  walk.machine.take_restart();
  walk.machine.on_end(StreamEnd::closed, walk.now + 100ms);
  EXPECT_EQ(walk.machine.take_restart(), Restart::short_watch);
  walk.request();
  EXPECT_GT(walk.take_wait(), Duration(0));
}

TEST(WatchMachine, NoServerCanMakeItLoopHotly) {
  // Every stream brings one new version and ends at once.
  Walk walk;
  walk.sync("10");
  for (int i = 0; i < 200; ++i) {
    walk.machine.on_event(EventKind::bookmark, std::to_string(11 + i), false, walk.now);
    walk.machine.on_end(StreamEnd::closed, walk.now);
    walk.request();
  }
  EXPECT_GT(walk.take_wait(), Duration(10min));
}

TEST(WatchMachine, FailuresBackOffToHalfAMinuteAndForget) {
  Walk walk;
  walk.sync("10");
  Duration longest{0};
  for (int i = 0; i < 50; ++i) {
    walk.machine.on_end(StreamEnd::broken, walk.now);
    walk.request();
    longest = std::max(longest, walk.take_wait());
  }
  EXPECT_GT(longest, Duration(15s));
  EXPECT_LE(longest, Duration(30s));
  walk.now += 3min;
  walk.machine.on_end(StreamEnd::broken, walk.now);
  walk.request();
  EXPECT_LE(walk.take_wait(), Duration(800ms));
}

}  // namespace
}  // namespace penstock::kube
