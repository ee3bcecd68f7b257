// A cache against a model API server that fails in every way we know of, byte by byte. Whatever happened, once the
// faults end the cache equals the server within few requests. PENSTOCK_SEED chooses the first seed.
#include "common/kube/core/reflector.hpp"

#include <gtest/gtest.h>

#include <map>

#include "common/http/message.hpp"
#include "tests/support/seed.hpp"

namespace penstock::kube {
namespace {

using namespace std::chrono_literals;

struct Thing {
  ObjectMeta meta;
  std::int64_t value = 0;
};

Result<Thing> project(const json::Object& object) {
  PENSTOCK_TRY(ObjectMeta meta, parse_meta(object));
  const auto value = integer_at(object, {"spec", "value"});
  if (!value) return make_error(ErrorCode::invalid_argument, "spec.value must be an integer");
  return Thing{std::move(meta), *value};
}

/// One resource with its history.
class ModelServer {
 public:
  struct Stored {
    std::uint64_t uid = 0;
    std::uint64_t version = 0;
    std::int64_t value = 0;
    bool readable = true;
  };
  struct Event {
    std::uint64_t version;
    std::string type;
    std::string object;
  };

  void put(const std::string& name, std::int64_t value, bool readable) {
    const bool is_new = !objects.contains(name);
    Stored& stored = objects[name];
    if (is_new) stored.uid = ++uids_;
    stored.version = ++version;
    stored.value = value;
    stored.readable = readable;
    log_.push_back({version, is_new ? "ADDED" : "MODIFIED", json_of(name, stored)});
  }
  void remove(const std::string& name) {
    Stored stored = objects.at(name);
    objects.erase(name);
    stored.version = ++version;
    log_.push_back({version, "DELETED", json_of(name, stored)});
  }
  void compact() {
    compacted = version;
    std::erase_if(log_, [&](const Event& event) { return event.version <= compacted; });
  }
  /// As after a restore from a backup taken a moment ago. Before the next write the versions are bumped and the old
  /// ones marked as compacted, as etcd's manual asks.
  void restore(const std::map<std::string, Stored>& backup, std::uint64_t backup_version) {
    objects = backup;
    std::erase_if(log_, [&](const Event& event) { return event.version > backup_version; });
    high_water_ = std::max(high_water_, version);
    version = backup_version;
    compacted = std::min(compacted, version);
  }
  void bump() {
    version = std::max(version, high_water_) + 1;
    compact();
  }

  static std::string json_of(const std::string& name, const Stored& stored) {
    return R"({"metadata":{"name":")" + name + R"(","uid":"u)" + std::to_string(stored.uid) +
           R"(","resourceVersion":")" + std::to_string(stored.version) + R"("},"spec":{"value":)" +
           (stored.readable ? std::to_string(stored.value) : "{\"odd\":\"ü\"}") + "}}";
  }
  std::string events_after(std::uint64_t from) const {
    std::string text;
    for (const Event& event : log_) {
      if (event.version > from) text += R"({"type":")" + event.type + R"(","object":)" + event.object + "}\n";
    }
    return text;
  }
  std::string bookmark(bool ends_initial) const {
    return R"({"type":"BOOKMARK","object":{"kind":"Thing","metadata":{"resourceVersion":")" + std::to_string(version) +
           (ends_initial ? R"(","annotations":{"k8s.io/initial-events-end":"true"}}}})" : R"("}}})") + "\n";
  }

  std::map<std::string, Stored> objects;
  std::uint64_t version = 1;
  std::uint64_t compacted = 0;

 private:
  std::vector<Event> log_;
  std::uint64_t uids_ = 0;
  std::uint64_t high_water_ = 0;
};

std::string status_event(int code) {
  return R"({"type":"ERROR","object":{"kind":"Status","code":)" + std::to_string(code) + "}}\n";
}

class FaultRun {
 public:
  explicit FaultRun(std::uint64_t seed)
      : random_(seed), sink_(store_, project), reflector_(options(), sink_, seed, observer()) {
    store_.observe([this](const Change<Thing>& change) { check(change); });
  }

  void step(bool faults) {
    faults_ = faults;
    WatchStep step = reflector_.next(now_);
    if (const auto* wait = std::get_if<WaitUntil>(&step)) {
      ASSERT_GT(wait->time, now_);
      ASSERT_LE(wait->time - now_, Duration(31s));
      now_ = wait->time;
      return;
    }
    ++requests;
    const WatchRequest request = std::get<WatchRequest>(step);
    now_ += 20ms;
    if (faults && random_.below(6) == 0) return fail();
    if (request.kind == RequestKind::list_page) return list(request);
    stream(request);
  }

  void mutate() {
    if (random_.below(40) == 0) server_.compact();
    if (random_.below(60) == 0) {
      backup_ = server_.objects;
      backup_version_ = server_.version;
    }
    if (faults_ && backup_version_ > 0 && random_.below(80) == 0) {
      server_.restore(backup_, backup_version_);
      restored_ = true;
      return;
    }
    if (restored_) server_.bump();
    restored_ = false;
    const std::string name = "o" + std::to_string(random_.below(12));
    if (server_.objects.contains(name) && random_.below(3) == 0) return server_.remove(name);
    server_.put(name, static_cast<std::int64_t>(random_.below(1000)), random_.below(8) != 0);
  }

  /// Every object is readable from now on.
  void heal() {
    faults_ = false;
    for (const auto& [name, stored] : server_.objects) {
      if (!stored.readable) names_.push_back(name);
    }
    if (restored_) server_.bump();
    for (const std::string& name : names_) server_.put(name, 1, true);
  }

  bool equal() const {
    if (!store_.synced() || store_.size() != server_.objects.size()) return false;
    for (const Thing* thing : store_.all()) {
      const auto found = server_.objects.find(thing->meta.name);
      if (found == server_.objects.end() || found->second.value != thing->value ||
          found->second.version != thing->meta.resource_version) {
        return false;
      }
    }
    return true;
  }

  std::size_t requests = 0;
  std::size_t restarts = 0;
  std::size_t bad_objects = 0;

 private:
  WatchOptions options() {
    WatchOptions made;
    made.page_objects = 3;
    if (random_.below(3) == 0) made.first_list = FirstList::paged;
    return made;
  }
  ReflectorObserver observer() {
    return {[this](Restart) { ++restarts; }, [this](const Error&) { ++bad_objects; }, {}};
  }

  /// What is still there, readable or not, must not be reported as gone.
  void check(const Change<Thing>& change) {
    if (change.after != nullptr || streaming_) return;  // a stream may be behind the server: that is no mistake
    const auto found = server_.objects.find(change.before->meta.name);
    if (found == server_.objects.end()) return;
    EXPECT_NE("u" + std::to_string(found->second.uid), change.before->meta.uid) << "a list lost a living object";
  }

  void fail() {
    ApiStatus status;
    constexpr int codes[] = {0, 0, 401, 403, 410, 429, 500, 503, 504};
    status.code = codes[random_.below(std::size(codes))];
    if (status.code == 504) status.causes.push_back({"ResourceVersionTooLarge", "", ""});
    if (status.code == 429) status.retry_after = 1s;
    reflector_.on_failed(status, now_);
  }

  /// In parts of random sizes; false if the reflector has had enough.
  bool feed(std::string_view text) {
    while (!text.empty()) {
      const std::string part(text.substr(0, 1 + random_.below(40)));
      text.remove_prefix(part.size());
      if (!reflector_.on_bytes(part, now_)) return false;
    }
    return true;
  }

  std::string parameter(const WatchRequest& request, std::string_view name) const {
    return http::query_parameter(request.query, name).value_or("");
  }

  void refuse(int code, const std::string& cause = "") {
    ApiStatus status;
    status.code = code;
    if (!cause.empty()) status.causes.push_back({cause, "", ""});
    reflector_.on_failed(status, now_);
  }

  void list(const WatchRequest& request) {
    streaming_ = false;
    const std::string wanted = parameter(request, "resourceVersion"), token = parameter(request, "continue");
    if (parse_version(wanted) > server_.version) return refuse(504, "ResourceVersionTooLarge");
    const std::uint64_t at = token.empty() ? server_.version : parse_version(token.substr(0, token.find('/')));
    if (!token.empty() && (at < server_.compacted || at != server_.version)) return refuse(410);
    const std::string after = token.empty() ? "" : token.substr(token.find('/') + 1);
    const std::uint64_t limit = parse_version(parameter(request, "limit"));
    std::string items, last, next;
    std::uint64_t count = 0;
    for (auto each = server_.objects.upper_bound(after); each != server_.objects.end(); ++each) {
      if (limit > 0 && count == limit) {
        next = std::to_string(at) + "/" + last;
        break;
      }
      items += (count++ > 0 ? "," : "") + ModelServer::json_of(each->first, each->second);
      last = each->first;
    }
    std::string text = R"({"kind":"List","items":[)" + items + R"(],"metadata":{"resourceVersion":")" +
                       std::to_string(at) + R"(","continue":")" + next + "\"}}";
    const bool cut = faults_ && random_.below(4) == 0;
    if (cut) text.resize(random_.below(text.size()));
    if (feed(text)) reflector_.on_end(cut && random_.below(2) == 0 ? StreamEnd::broken : StreamEnd::closed, now_);
  }

  void stream(const WatchRequest& request) {
    streaming_ = true;
    const std::uint64_t from = parse_version(parameter(request, "resourceVersion"));
    if (from > server_.version) return refuse(504, "ResourceVersionTooLarge");
    std::uint64_t sent = from;
    if (request.kind == RequestKind::streamed_list) {
      if (faults_ && random_.below(10) == 0) return refuse(400);
      std::string text;
      for (const auto& [name, stored] : server_.objects) {
        text += R"({"type":"ADDED","object":)" + ModelServer::json_of(name, stored) + "}\n";
      }
      sent = server_.version;
      const bool endless = faults_ && random_.below(5) == 0;
      if (!endless) text += server_.bookmark(true);
      if (!feed(text)) return;
      if (endless) return reflector_.on_end(StreamEnd::silent, now_ += 10s);
    } else if (from < server_.compacted) {
      if (random_.below(2) == 0) return refuse(410);
      (void)feed(status_event(410));
      return;
    }
    for (std::uint64_t rounds = random_.below(4); rounds > 0; --rounds) {
      now_ += 400ms;
      if (faults_) mutate();
      if (server_.version < sent || sent < server_.compacted) break;  // restored or compacted under the watch
      std::string text = server_.events_after(sent);
      sent = server_.version;
      if (random_.below(3) == 0) text += server_.bookmark(false) + R"({"type":"NEW","object":{"a":1}})" + "\n";
      if (faults_ && random_.below(8) == 0) text += status_event(random_.below(2) == 0 ? 429 : 500);
      if (faults_ && random_.below(8) == 0) {
        if (feed(text.substr(0, random_.below(text.size() + 1)))) reflector_.on_end(StreamEnd::broken, now_);
        return;
      }
      if (!feed(text)) return;
    }
    reflector_.on_end(random_.below(2) == 0 ? StreamEnd::closed : StreamEnd::overdue, now_);
  }

  Random random_;
  TimePoint now_{1h};
  ModelServer server_;
  std::map<std::string, ModelServer::Stored> backup_;
  std::uint64_t backup_version_ = 0;
  bool restored_ = false;
  bool faults_ = true;
  bool streaming_ = false;
  std::vector<std::string> names_;
  Store<Thing> store_;
  StoreSink<Thing> sink_;
  Reflector reflector_;
};

TEST(Reflector, EndsEqualToTheServerAfterAnyFaults) {
  const std::uint64_t first = first_seed();
  std::size_t restarts = 0, bad_objects = 0;
  for (std::uint64_t seed = first; seed < first + 400; ++seed) {
    SCOPED_TRACE("PENSTOCK_SEED=" + std::to_string(seed));
    FaultRun run(seed);
    for (int i = 0; i < 120; ++i) {
      run.mutate();
      run.step(true);
      if (testing::Test::HasFailure()) return;
    }
    run.heal();
    const std::size_t before = run.requests;
    for (int i = 0; i < 60 && !run.equal(); ++i) run.step(false);
    ASSERT_TRUE(run.equal());
    EXPECT_LE(run.requests - before, 25u);
    restarts += run.restarts;
    bad_objects += run.bad_objects;
  }
  EXPECT_GT(restarts, 1000u) << "the faults did happen";
  EXPECT_GT(bad_objects, 1000u);
}

TEST(Reflector, OneBadObjectStopsNothing) {
  Store<Thing> store;
  StoreSink<Thing> sink(store, project);
  std::vector<std::string> bad;
  Reflector reflector({}, sink, 1, {{}, [&](const Error& error) { bad.push_back(error.message); }, {}});
  const TimePoint now{1h};
  reflector.next(now);
  EXPECT_TRUE(reflector.on_bytes(R"({"type":"ADDED","object":{"metadata":{"name":"a","uid":"1"},"spec":{"value":"x"}}}
    {"type":"ADDED","object":{"metadata":{"name":"b","uid":"2"},"spec":{"value":2}}}
    {"type":"ADDED","object":{"metadata":{"name":"c","uid":"3"},"spec":{"value":1e999}}}
    {"type":"ADDED"} {"type":"ADDED","object":[]} {} {"type":7,"object":{}}
    {"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"5","annotations":{"k8s.io/initial-events-end":"true"}}}}
    )",
                                 now));
  EXPECT_TRUE(store.synced());
  EXPECT_EQ(store.size(), 1u);
  EXPECT_EQ(store.version(), 5u);
  EXPECT_EQ(bad.size(), 5u);
}

TEST(Reflector, WhatIsNoStreamIsAFailureNotALoop) {
  Store<Thing> store;
  StoreSink<Thing> sink(store, project);
  Reflector reflector({}, sink, 1);
  const TimePoint now{1h};
  reflector.next(now);
  EXPECT_FALSE(reflector.on_bytes("<html>proxy</html>", now));
  EXPECT_TRUE(std::holds_alternative<WaitUntil>(reflector.next(now)));
}

}  // namespace
}  // namespace penstock::kube
