// The life of a request: what counts, what is sent again, who is told, and that there is one end.
#include <gtest/gtest.h>

#include <map>

#include "router/core/migration/request_state.hpp"

namespace penstock::router {
namespace {

const InstanceId worker_a{1, 1}, worker_b{2, 2}, worker_c{3, 3};

struct Driver {
  explicit Driver(std::uint32_t choices = 1, MigrationLimits limits = {}, std::optional<TimePoint> deadline = {})
      : state(spec(choices), limits, deadline, [](const TransferParties&) { return std::string("ticket"); }) {
    state.start(now, actions);
  }

  static protocol::GenerateSpec spec(std::uint32_t choices) {
    protocol::GenerateSpec spec;
    spec.request = RequestId{7, 7};
    spec.prompt = {1, 2, 3};
    spec.sampling.tokens_max = 8;
    for (std::uint32_t i = 0; i < choices; ++i) spec.choices.push_back({i, {}});
    return spec;
  }

  void place(InstanceId decode, std::optional<InstanceId> prefill = {}) {
    actions.clear();
    state.on_placed(now, {decode, prefill, "d:1", "p:1"}, actions);
  }
  void tokens(InstanceId from, std::uint32_t attempt, std::uint32_t choice, std::uint32_t position,
              std::vector<TokenId> ids, std::optional<protocol::FinishReason> finish = {}) {
    actions.clear();
    protocol::ChoiceStep step;
    step.request = state.id();
    step.attempt = attempt;
    step.choice = choice;
    step.position = position;
    step.tokens = std::move(ids);
    step.finish = finish;
    state.on_step(now, from, std::move(step), actions);
    for (const auto& action : actions) {
      if (const auto* delivery = std::get_if<Deliver>(&action)) {
        auto& all = seen[delivery->step.choice];
        all.insert(all.end(), delivery->step.tokens.begin(), delivery->step.tokens.end());
      }
    }
  }
  void progress(InstanceId from, std::uint32_t attempt) { state.on_progress(now, from, {state.id(), attempt, 1}); }
  void lose(InstanceId worker) {
    actions.clear();
    state.on_worker_lost(now, worker, actions);
  }
  void error(InstanceId worker, ErrorCode code) {
    actions.clear();
    state.on_request_error(now, worker, {state.id(), state.spec().attempt, {code, "x"}, {}}, actions);
  }

  template <class T>
  const T* find() const {
    for (const auto& action : actions) {
      if (const T* found = std::get_if<T>(&action)) return found;
    }
    return nullptr;
  }
  template <class Message>
  const Message* sent(InstanceId to) const {
    for (const auto& action : actions) {
      const auto* send = std::get_if<SendTo>(&action);
      if (send == nullptr || send->worker != to) continue;
      if (const auto* message = std::get_if<Message>(&send->message)) return message;
    }
    return nullptr;
  }
  template <class T>
  bool ended() const {
    const Ended* end = find<Ended>();
    return end != nullptr && std::holds_alternative<T>(end->outcome);
  }

  TimePoint now{std::chrono::hours(1)};
  Actions actions;
  RequestState state;
  std::map<std::uint32_t, std::vector<TokenId>> seen;
};

using Tokens = std::vector<TokenId>;

TEST(RequestState, ProgressHoldsOffTheTimerOnlyWhileItComes) {
  MigrationLimits limits;
  limits.no_progress_prefill = std::chrono::seconds(10);
  Driver driver(1, limits);
  driver.place(worker_a);
  // A prompt that takes ten minutes, with a sign of life every nine seconds.
  for (int i = 1; i <= 66; ++i) {
    driver.now += std::chrono::seconds(9);
    driver.progress(worker_a, 0);
    driver.actions.clear();
    driver.state.on_timer(driver.now + std::chrono::seconds(9), driver.actions);
    ASSERT_TRUE(driver.actions.empty()) << i;
  }
  driver.actions.clear();
  driver.state.on_timer(driver.now + std::chrono::seconds(10), driver.actions);
  ASSERT_NE(driver.find<WantPlace>(), nullptr);
  EXPECT_EQ(driver.find<WantPlace>()->kind, PlaceKind::retry);
}

TEST(RequestState, OnlyTheAwaitedWorkersProgressCounts) {
  MigrationLimits limits;
  limits.no_progress_prefill = std::chrono::seconds(10);
  limits.no_progress_decode = std::chrono::seconds(4);
  Driver driver(1, limits);
  driver.place(worker_b, worker_a);  // A prefills for B
  const TimePoint first = *driver.state.next_timer();
  driver.now += std::chrono::seconds(1);
  driver.progress(worker_b, 0);
  driver.progress(worker_c, 0);
  driver.progress(worker_a, 1);  // of no attempt that runs
  EXPECT_EQ(driver.state.next_timer(), first);
  driver.progress(worker_a, 0);
  EXPECT_EQ(driver.state.next_timer(), first + std::chrono::seconds(1));
  driver.tokens(worker_a, 0, 0, 0, {5});
  const TimePoint second = *driver.state.next_timer();
  EXPECT_EQ(second, driver.now + std::chrono::seconds(4));
  driver.now += std::chrono::seconds(1);
  driver.progress(worker_a, 0);  // has done its part
  EXPECT_EQ(driver.state.next_timer(), second);
  driver.progress(worker_b, 0);  // the KV is still coming
  EXPECT_EQ(driver.state.next_timer(), second + std::chrono::seconds(1));
}

TEST(RequestState, RunsToItsEndOnOneWorker) {
  Driver driver;
  driver.place(worker_a);
  ASSERT_NE(driver.sent<protocol::Generate>(worker_a), nullptr);
  driver.tokens(worker_a, 0, 0, 0, {10});
  driver.tokens(worker_a, 0, 0, 1, {11}, protocol::FinishReason::stop);
  EXPECT_TRUE(driver.ended<Completed>());
  EXPECT_EQ(driver.seen[0], (Tokens{10, 11}));
  EXPECT_EQ(driver.state.usage().completion_tokens, 2u);
  EXPECT_EQ(driver.sent<protocol::Abort>(worker_a), nullptr);
}

TEST(RequestState, DropsRepeatsAndFailsTheAttemptOnAGap) {
  Driver driver;
  driver.place(worker_a);
  driver.tokens(worker_a, 0, 0, 0, {10, 11});
  driver.tokens(worker_a, 0, 0, 1, {11, 12});
  EXPECT_EQ(driver.seen[0], (Tokens{10, 11, 12}));
  EXPECT_EQ(driver.state.repeats(), 1u);
  driver.tokens(worker_a, 0, 0, 5, {15});
  EXPECT_EQ(driver.state.gaps(), 1u);
  EXPECT_NE(driver.sent<protocol::Abort>(worker_a), nullptr);
  ASSERT_NE(driver.find<WantPlace>(), nullptr);
  EXPECT_EQ(driver.find<WantPlace>()->kind, PlaceKind::migrate);
  EXPECT_EQ(driver.state.failed_workers(), std::vector<InstanceId>{worker_a});
}

TEST(RequestState, RetriesOnceBeforeTheFirstToken) {
  Driver driver;
  driver.place(worker_a);
  driver.lose(worker_a);
  ASSERT_NE(driver.find<WantPlace>(), nullptr);
  EXPECT_EQ(driver.find<WantPlace>()->kind, PlaceKind::retry);
  driver.place(worker_b);
  EXPECT_EQ(driver.sent<protocol::Generate>(worker_b)->spec.attempt, 1u);
  driver.lose(worker_b);
  EXPECT_TRUE(driver.ended<Failed>());
}

TEST(RequestState, MigratesWithAcceptedTokensAndKeepsTheSeed) {
  Driver driver(2);
  driver.place(worker_a);
  driver.tokens(worker_a, 0, 0, 0, {10});
  driver.tokens(worker_a, 0, 1, 0, {20}, protocol::FinishReason::stop);
  driver.tokens(worker_a, 0, 0, 1, {11});
  driver.lose(worker_a);
  EXPECT_EQ(driver.find<WantPlace>()->kind, PlaceKind::migrate);
  EXPECT_EQ(driver.find<WantPlace>()->split, SplitUse::forbidden);
  driver.place(worker_b);
  const auto* again = driver.sent<protocol::Generate>(worker_b);
  ASSERT_NE(again, nullptr);
  ASSERT_EQ(again->spec.choices.size(), 1u);
  EXPECT_EQ(again->spec.choices[0].index, 0u);
  EXPECT_EQ(again->spec.choices[0].accepted, (Tokens{10, 11}));
  driver.tokens(worker_a, 0, 0, 2, {99});  // late, of the old attempt
  EXPECT_EQ(driver.find<Deliver>(), nullptr);
  driver.tokens(worker_b, 1, 0, 2, {12}, protocol::FinishReason::length);
  EXPECT_TRUE(driver.ended<Completed>());
  EXPECT_EQ(driver.seen[0], (Tokens{10, 11, 12}));
}

TEST(RequestState, GivesUpAfterTheLastMigration) {
  Driver driver;
  driver.place(worker_a);
  driver.tokens(worker_a, 0, 0, 0, {10});
  driver.lose(worker_a);
  driver.place(worker_b);
  driver.lose(worker_b);
  driver.place(worker_c);
  driver.lose(worker_c);
  ASSERT_TRUE(driver.ended<Failed>());
  EXPECT_TRUE(std::get<Failed>(driver.find<Ended>()->outcome).is_worker_lost);
}

TEST(RequestState, SplitsAndTakesTheFirstTokenFromPrefill) {
  Driver driver;
  driver.place(worker_b, worker_a);
  ASSERT_NE(driver.sent<protocol::Prefill>(worker_a), nullptr);
  ASSERT_NE(driver.sent<protocol::Expect>(worker_b), nullptr);
  EXPECT_EQ(driver.sent<protocol::Prefill>(worker_a)->route.peer, worker_b);
  EXPECT_EQ(driver.sent<protocol::Expect>(worker_b)->route.peer, worker_a);
  EXPECT_EQ(driver.sent<protocol::Expect>(worker_b)->route.ticket, "ticket");
  driver.tokens(worker_b, 0, 0, 1, {11});  // D was quicker than P's message
  EXPECT_EQ(driver.find<Deliver>(), nullptr);
  driver.tokens(worker_a, 0, 0, 0, {10});
  EXPECT_EQ(driver.seen[0], (Tokens{10, 11}));
  EXPECT_NE(driver.find<PrefillDone>(), nullptr);
  driver.lose(worker_a);  // P no longer matters
  EXPECT_TRUE(driver.actions.empty());
  driver.tokens(worker_b, 0, 0, 2, {12}, protocol::FinishReason::stop);
  EXPECT_TRUE(driver.ended<Completed>());
}

TEST(RequestState, OffersTheKvAgainWhenDecodeDies) {
  Driver driver;
  driver.place(worker_b, worker_a);
  const TransferId transfer = driver.sent<protocol::Prefill>(worker_a)->route.transfer;
  driver.tokens(worker_a, 0, 0, 0, {10});
  driver.lose(worker_b);
  ASSERT_NE(driver.find<WantPlace>(), nullptr);
  EXPECT_EQ(driver.find<WantPlace>()->kind, PlaceKind::reoffer);
  EXPECT_EQ(driver.find<WantPlace>()->prefill, worker_a);
  driver.place(worker_c, worker_a);
  const auto* reoffer = driver.sent<protocol::Reoffer>(worker_a);
  ASSERT_NE(reoffer, nullptr);
  EXPECT_EQ(reoffer->route.transfer, transfer);
  EXPECT_EQ(reoffer->route.attempt, 1u);
  EXPECT_EQ(reoffer->route.peer, worker_c);
  ASSERT_NE(driver.sent<protocol::Expect>(worker_c), nullptr);
  EXPECT_TRUE(driver.sent<protocol::Expect>(worker_c)->spec.choices[0].accepted.empty());
  driver.tokens(worker_c, 1, 0, 1, {11}, protocol::FinishReason::stop);
  EXPECT_TRUE(driver.ended<Completed>());
  EXPECT_EQ(driver.seen[0], (Tokens{10, 11}));
}

TEST(RequestState, TellsDecodeWhenPrefillDies) {
  Driver driver;
  driver.place(worker_b, worker_a);
  driver.lose(worker_a);
  EXPECT_NE(driver.sent<protocol::Abort>(worker_b), nullptr);
  EXPECT_EQ(driver.find<WantPlace>()->kind, PlaceKind::retry);
}

TEST(RequestState, ReleasesPrefillWhenAllEndsWithTheFirstToken) {
  Driver driver;
  driver.place(worker_b, worker_a);
  driver.tokens(worker_a, 0, 0, 0, {10}, protocol::FinishReason::stop);
  EXPECT_NE(driver.sent<protocol::Release>(worker_a), nullptr);
  EXPECT_NE(driver.sent<protocol::Abort>(worker_b), nullptr);
  EXPECT_TRUE(driver.ended<Completed>());
}

TEST(RequestState, StopStringAbortsTheChoiceWithTheTokensKept) {
  Driver driver(2);
  driver.place(worker_a);
  driver.tokens(worker_a, 0, 0, 0, {10, 11, 12});
  driver.actions.clear();
  driver.state.on_stop_string(driver.now, 0, 2, driver.actions);
  const auto* abort = driver.sent<protocol::Abort>(worker_a);
  ASSERT_NE(abort, nullptr);
  EXPECT_EQ(abort->choice, 0u);
  EXPECT_EQ(abort->tokens_kept, 2u);
  EXPECT_EQ(driver.find<Ended>(), nullptr);
  driver.tokens(worker_a, 0, 0, 3, {13});
  EXPECT_EQ(driver.find<Deliver>(), nullptr);
  driver.tokens(worker_a, 0, 1, 0, {20}, protocol::FinishReason::length);
  EXPECT_TRUE(driver.ended<Completed>());
  EXPECT_EQ(driver.state.usage().completion_tokens, 3u);
}

TEST(RequestState, CancelReachesEveryHolderOnce) {
  Driver driver;
  driver.place(worker_b, worker_a);
  driver.actions.clear();
  driver.state.on_client_gone(driver.now, driver.actions);
  EXPECT_NE(driver.sent<protocol::Abort>(worker_a), nullptr);
  EXPECT_NE(driver.sent<protocol::Abort>(worker_b), nullptr);
  EXPECT_TRUE(driver.ended<Cancelled>());
  driver.actions.clear();
  driver.state.on_client_gone(driver.now, driver.actions);
  EXPECT_TRUE(driver.actions.empty());
}

TEST(RequestState, RequestsOwnFaultIsFinal) {
  Driver driver;
  driver.place(worker_a);
  driver.error(worker_a, ErrorCode::invalid_argument);
  EXPECT_TRUE(driver.ended<Failed>());
}

TEST(RequestState, RefusalsAreBoundedApartFromRetries) {
  Driver driver;
  driver.place(worker_a);
  for (int i = 0; i < 3; ++i) {
    driver.error(worker_a, ErrorCode::resource_exhausted);
    ASSERT_NE(driver.find<WantPlace>(), nullptr) << i;
    EXPECT_EQ(driver.find<WantPlace>()->kind, PlaceKind::again);
    driver.place(worker_a);
  }
  driver.error(worker_a, ErrorCode::resource_exhausted);
  EXPECT_TRUE(driver.ended<Failed>());
  EXPECT_EQ(driver.state.retries(), 0u);
}

TEST(RequestState, SilentWorkerIsLeft) {
  Driver driver;
  driver.place(worker_a);
  driver.tokens(worker_a, 0, 0, 0, {10});
  driver.now += std::chrono::seconds(11);
  driver.actions.clear();
  driver.state.on_timer(driver.now, driver.actions);
  EXPECT_NE(driver.sent<protocol::Abort>(worker_a), nullptr);
  EXPECT_EQ(driver.find<WantPlace>()->kind, PlaceKind::migrate);
}

// The next worker has to prefill the prompt and what was already given before it can give a token.
TEST(RequestState, AMigratedRequestHasTimeForItsPrefill) {
  Driver driver;
  driver.place(worker_a);
  driver.tokens(worker_a, 0, 0, 0, {10, 11});
  driver.lose(worker_a);
  driver.place(worker_b);
  const MigrationLimits limits;
  EXPECT_EQ(driver.state.next_timer(), driver.now + limits.no_progress_prefill);
  driver.now += limits.no_progress_decode + std::chrono::seconds(1);
  driver.actions.clear();
  driver.state.on_timer(driver.now, driver.actions);
  EXPECT_TRUE(driver.actions.empty());
  driver.tokens(worker_b, 1, 0, 2, {12});
  EXPECT_EQ(driver.state.next_timer(), driver.now + limits.no_progress_decode);
}

TEST(RequestState, DeadlineEndsIt) {
  Driver driver(1, {}, TimePoint{std::chrono::hours(1)} + std::chrono::seconds(5));
  driver.place(worker_a);
  EXPECT_EQ(driver.sent<protocol::Generate>(worker_a)->spec.deadline, std::chrono::seconds(5));
  driver.now += std::chrono::seconds(6);
  driver.actions.clear();
  driver.state.on_timer(driver.now, driver.actions);
  EXPECT_NE(driver.sent<protocol::Abort>(worker_a), nullptr);
  ASSERT_TRUE(driver.ended<Failed>());
  EXPECT_EQ(std::get<Failed>(driver.find<Ended>()->outcome).error.code, ErrorCode::deadline_exceeded);
}

}  // namespace
}  // namespace penstock::router
