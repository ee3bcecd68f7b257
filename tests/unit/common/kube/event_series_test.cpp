// Events: repeats become series, floods are dropped.
#include "common/kube/core/event_series.hpp"

#include <gtest/gtest.h>

namespace penstock::kube {
namespace {

using namespace std::chrono_literals;

EmitEvent about(std::string name, std::string note = "n") {
  EmitEvent event;
  event.regarding = {"v1", "Pod", "space", std::move(name), "uid"};
  event.reason = "GroupRestarting";
  event.action = "Restart";
  event.note = std::move(note);
  return event;
}

TEST(EventSeries, RepeatsAreCountedInFewWrites) {
  EventSeries series({}, 1);
  TimePoint now{1h};
  const auto first = series.record(about("a"), now, Timestamp::from_seconds(1));
  ASSERT_TRUE(first && std::holds_alternative<Create>(*first));
  const Create& create = std::get<Create>(*first);
  EXPECT_EQ(create.namespace_, "space");
  EXPECT_EQ(text_at(create.body, {"regarding", "uid"}), "uid");
  EXPECT_EQ(text_at(create.body, {"reportingController"}), "penstock.dev/operator");
  EXPECT_EQ(text_at(create.body, {"eventTime"}), "1970-01-01T00:00:01.000000Z");
  int patches = 0;
  for (int i = 0; i < 50; ++i) {
    now += 1s;
    if (const auto write = series.record(about("a"), now, Timestamp::from_seconds(2 + i))) {
      ++patches;
      EXPECT_EQ(std::get<Patch>(*write).key.name, text_at(create.body, {"metadata", "name"}));
    }
  }
  EXPECT_EQ(patches, 1) << "the second time, then not for a minute";
  EXPECT_TRUE(series.due(now).empty());
  now += 1min;
  const auto due = series.due(now);
  ASSERT_EQ(due.size(), 1u);
  const json::Object& body = std::get<Patch>(due[0]).body.as_object();
  EXPECT_EQ(object_at(body, {"series"})->at("count").to_number<int>(), 51);
  EXPECT_EQ(text_at(body, {"series", "lastObservedTime"}), "1970-01-01T00:00:51.000000Z");
  EXPECT_TRUE(series.due(now).empty());
}

TEST(EventSeries, ASeriesEndsAfterSixQuietMinutes) {
  EventSeries series({}, 1);
  TimePoint now{1h};
  const auto first = series.record(about("a"), now, {});
  now += 6min;
  EXPECT_TRUE(series.due(now).empty());
  const auto second = series.record(about("a"), now, {});
  ASSERT_TRUE(second && std::holds_alternative<Create>(*second));
  EXPECT_NE(std::get<Create>(*first).body.at("metadata"), std::get<Create>(*second).body.at("metadata"));
}

TEST(EventSeries, AFloodOfDifferentEventsLosesTheExcess) {
  EventSeries series({}, 1);
  TimePoint now{1h};
  int written = 0;
  for (int i = 0; i < 100; ++i) written += series.record(about("a", std::to_string(i)), now, {}) ? 1 : 0;
  EXPECT_EQ(written, 25);
  EXPECT_EQ(series.dropped(), 75u);
  EXPECT_TRUE(series.record(about("b"), now, {})) << "another object is not to blame";
  now += 5min;
  EXPECT_TRUE(series.record(about("a", "later"), now, {}));
  EXPECT_FALSE(series.record(about("a", "at once"), now, {}));
}

TEST(EventSeries, RemembersABoundedNumber) {
  EventOptions options;
  options.series_max = 10;
  EventSeries series(options, 1);
  TimePoint now{1h};
  for (int i = 0; i < 1000; ++i) series.record(about("o" + std::to_string(i)), now += 1ms, {});
  const auto again = series.record(about("o0"), now, {});
  ASSERT_TRUE(again);
  EXPECT_TRUE(std::holds_alternative<Create>(*again)) << "forgotten: a new series";
}

TEST(EventSeries, CutsNotesAtACharacter) {
  EventSeries series({}, 1);
  std::string note(1023, 'x');
  const auto write = series.record(about("a", note + "üü"), TimePoint(1h), {});
  EXPECT_EQ(text_at(std::get<Create>(*write).body, {"note"}), note);
}

}  // namespace
}  // namespace penstock::kube
