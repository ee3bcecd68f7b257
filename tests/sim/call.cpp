#include "tests/sim/call.hpp"

#include <algorithm>

#include "router/proxy/dispatcher.hpp"

namespace penstock::sim {

using namespace std::chrono_literals;

namespace {

// Timers of requests are looked at four times a second, on a tick of 50 ms.
constexpr Duration deadline_slack = 400ms;

// What the router is told; the checkers know better.
std::optional<TimePoint> deadline_of(const Plan& plan, const RequestPlan& request, TimePoint now) {
  if (request.deadline == Duration{} || plan.bug == Bug::deadlines_ignored) return std::nullopt;
  return now + request.deadline;
}

router::MigrationLimits limits_of(const Plan& plan) {
  router::MigrationLimits limits = plan.migration;
  if (plan.bug == Bug::retries_unbounded) limits.retries_max = limits.migrations_max = 1000;
  return limits;
}

}  // namespace

protocol::GenerateSpec SimCall::spec_of(const Plan& plan, const RequestPlan& request, std::uint32_t index) {
  protocol::GenerateSpec spec;
  spec.request = {plan.seed * 2 + 1, index + 1};
  spec.prompt = request.prompt;
  for (std::uint32_t i = 0; i < request.choices; ++i) spec.choices.push_back({i, {}});
  spec.sampling.temperature = request.temperature;
  spec.sampling.seed = request.seed;
  spec.sampling.tokens_max = request.tokens_max;
  spec.sampling.tokens_min = request.tokens_min;
  spec.cache_salt = request.salt;
  spec.priority = request.priority;
  return spec;
}

SimCall::SimCall(const Plan& plan, const RequestPlan& request, std::uint32_t index, EventQueue& events,
                 Violations& violations, Tally& tally, router::Dispatcher& dispatcher, router::ServedModel& model,
                 std::vector<BlockHash> blocks, const router::TicketMaker& ticket)
    : world_(plan),
      request_(request),
      index_(index),
      events_(events),
      violations_(violations),
      tally_(tally),
      dispatcher_(dispatcher),
      sequence_(*this, model,
                router::RequestState(spec_of(plan, request, index), limits_of(plan),
                                     deadline_of(plan, request, events.now()), ticket)),
      streams_(request.choices, Stream{request.prompt, 0, std::nullopt, false}),
      life_(events) {
  if (request.deadline > Duration{}) deadline_ = events.now() + request.deadline;
  sequence_.tenant = request.salt;
  sequence_.priority = request.priority;
  sequence_.blocks = std::move(blocks);
  sequence_.arrived = events.now();
  sequence_.deadline = deadline_of(plan, request, events.now());
}

void SimCall::start() {
  ++tally_.requests;
  if (request_.gone_after > Duration{}) life_.after(request_.gone_after, [this] { leave(); });
  dispatcher_.start(sequence_);
}

void SimCall::leave() {
  if (is_ended()) return;
  has_left_ = true;
  dispatcher_.cancel(sequence_);
  if (!is_ended()) violation("the client left, and the call did not end");
}

void SimCall::cut() {
  if (is_ended()) return;
  ended_at_ = events_.now();
  end_text_ = "cut with its router";
  ++tally_.cut;
}

std::uint32_t SimCall::output_limit() const {
  return std::min<std::uint32_t>(request_.tokens_max,
                                 world_.context_tokens - static_cast<std::uint32_t>(request_.prompt.size()));
}

TokenId SimCall::true_token(const Stream& stream, std::uint32_t choice) const {
  std::optional<worker::FakeDraw> draw;
  if (request_.temperature > 0) draw = worker::FakeDraw{request_.seed, choice, stream.output};
  std::vector<TokenId> suppressed;
  if (stream.output < request_.tokens_min && world_.model.eos_token) suppressed.push_back(*world_.model.eos_token);
  return worker::fake_next_token(world_.model, stream.context, draw, suppressed);
}

void SimCall::on_tokens(router::Sequence&, protocol::ChoiceStep&& step) {
  if (step.choice >= streams_.size()) return violation("tokens of a choice that was not asked for");
  Stream& stream = streams_[step.choice];
  if (stream.is_stopped) return;  // what came in the same round as the stop string; the text side drops it too
  if (is_ended()) return violation("tokens came after the end");
  if (stream.finish) return violation("tokens came after the choice had finished");
  if (step.position != stream.output) {
    violation("position " + std::to_string(step.position) + " came instead of " + std::to_string(stream.output));
  }
  for (const TokenId token : step.tokens) {
    const TokenId expected = true_token(stream, step.choice);
    if (token != expected) {
      violation("choice " + std::to_string(step.choice) + " output " + std::to_string(stream.output) + ": token " +
                std::to_string(token) + " instead of " + std::to_string(expected));
      return;
    }
    stream.context.push_back(token);
    ++stream.output;
    ++tally_.tokens;
  }
  if (step.finish) {
    check_finish(stream, step.choice, *step.finish);
    stream.finish = step.finish;
  }
  if (step.choice != 0) return;
  if (request_.stop_after > 0 && stream.output >= request_.stop_after) {
    stream.is_stopped = true;
    return dispatcher_.stop_string(sequence_, 0, request_.stop_after);
  }
  if (request_.gone_tokens > 0 && stream.output >= request_.gone_tokens) {
    life_.after(events_.between(1us, 5ms), [this] { leave(); });
  }
}

void SimCall::check_finish(const Stream& stream, std::uint32_t choice, protocol::FinishReason finish) {
  const bool is_eos = stream.output > 0 && world_.model.eos_token == stream.context.back();
  const auto expected = is_eos                            ? std::optional(protocol::FinishReason::stop)
                        : stream.output >= output_limit() ? std::optional(protocol::FinishReason::length)
                                                          : std::nullopt;
  if (expected == finish) return;
  violation("choice " + std::to_string(choice) + " finished for reason " + std::to_string(static_cast<int>(finish)) +
            " after " + std::to_string(stream.output) + " of " + std::to_string(output_limit()) + " tokens");
}

void SimCall::on_ended(router::Sequence&, const router::Ended& ended) {
  if (is_ended()) return violation("it ended a second time");
  const TimePoint now = events_.now();
  ended_at_ = now;
  if (deadline_ && now > *deadline_ + deadline_slack) violation("it ended after its deadline");
  if (std::holds_alternative<router::Completed>(ended.outcome)) {
    end_text_ = "completed";
    is_completed_ = true;
    ++tally_.completed;
    for (std::uint32_t i = 0; i < streams_.size(); ++i) {
      if (!streams_[i].finish && !streams_[i].is_stopped)
        violation("completed, but choice " + std::to_string(i) + " has not finished");
    }
    check_usage();
  } else if (std::holds_alternative<router::Cancelled>(ended.outcome)) {
    end_text_ = "cancelled";
    ++tally_.cancelled;
    if (!has_left_) violation("cancelled, but the client had not left");
  } else {
    const auto& failed = std::get<router::Failed>(ended.outcome);
    end_text_ = "failed: " + std::string(to_string(failed.error.code)) + ": " + failed.error.message;
    // The queue has the same words for whoever waited too long, by its own deadline or by the queue's.
    const bool is_past = deadline_ && now >= *deadline_;
    const bool is_late = failed.error.code == ErrorCode::deadline_exceeded || is_past;
    ++(is_late ? tally_.late : tally_.failed);
    // A worker counts the deadline on its own clock.
    const auto skew =
        Duration(static_cast<Duration::rep>(static_cast<double>(request_.deadline.count()) * clock_skew_max));
    if (is_late && deadline_ && now < *deadline_ - skew - 5ms)
      violation("it failed for its deadline before its deadline");
    if (request_.must_complete) violation("it failed long after the last fault: " + end_text_);
    if (!is_late && !world_.is_faulty() && failed.error.code != ErrorCode::resource_exhausted) {
      violation("it failed without any fault: " + end_text_);
    }
  }
  const router::RequestState& state = sequence_.state;
  tally_.retries += state.retries();
  tally_.migrations += state.migrations();
  tally_.repeats += state.repeats();
  if (state.retries() > world_.migration.retries_max) violation("more retries than allowed");
  if (state.migrations() > world_.migration.migrations_max) violation("more migrations than allowed");
  if (state.repeats() > 0 && !has_reoffer_) violation("a worker repeated tokens");
  if (state.gaps() > 0) violation("a worker left a gap in its tokens");
}

void SimCall::check_usage() {
  const router::RequestUsage usage = sequence_.state.usage();
  std::uint32_t output = 0;
  for (const auto& stream : streams_)
    output += stream.is_stopped ? std::min(stream.output, request_.stop_after) : stream.output;
  if (usage.prompt_tokens != request_.prompt.size()) violation("usage counts a wrong number of prompt tokens");
  if (usage.completion_tokens != output && request_.stop_after == 0) {
    violation("usage counts " + std::to_string(usage.completion_tokens) + " output tokens; the client got " +
              std::to_string(output));
  }
  if (usage.cached_tokens > request_.prompt.size()) violation("usage counts more cached tokens than the prompt has");
  tally_.cached_tokens += usage.cached_tokens;
}

void SimCall::check_overdue(TimePoint now) {
  if (!is_ended() && deadline_ && now > *deadline_ + deadline_slack) violation("it goes on after its deadline");
}

void SimCall::check_at_end() {
  if (!is_ended()) violation("it has not ended, long after the last fault");
}

std::string SimCall::describe() const {
  std::string text = "call " + std::to_string(index_) + " (prompt " + std::to_string(request_.prompt.size()) + ", n " +
                     std::to_string(request_.choices) + ", max " + std::to_string(request_.tokens_max) + ", got";
  for (const auto& stream : streams_) text += " " + std::to_string(stream.output);
  return text + ", attempts " + std::to_string(sequence_.state.attempts()) + ", " +
         (is_ended() ? end_text_ : std::string("running")) + ")";
}

void SimCall::violation(const std::string& what) {
  violations_.add(describe() + ": " + what);
}

}  // namespace penstock::sim
