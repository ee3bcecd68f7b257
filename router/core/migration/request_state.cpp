#include "router/core/migration/request_state.hpp"

#include <algorithm>

#include "common/base/check.hpp"
#include "common/base/result.hpp"

namespace penstock::router {
namespace {

// The request itself is at fault, or too late: no other worker would do better.
bool is_final(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument:
    case ErrorCode::unsupported:
    case ErrorCode::permission_denied:
    case ErrorCode::unauthenticated:
    case ErrorCode::deadline_exceeded:
    case ErrorCode::internal:
      return true;
    case ErrorCode::not_found:
    case ErrorCode::resource_exhausted:
    case ErrorCode::unavailable:
    case ErrorCode::aborted:
    case ErrorCode::data_loss:
      return false;
  }
  return true;
}

bool is_refusal(ErrorCode code) {
  return code == ErrorCode::resource_exhausted || code == ErrorCode::unavailable;
}

// Cuts the first `count` tokens off a step.
void drop_front(protocol::ChoiceStep& step, std::size_t count) {
  const auto cut = static_cast<std::ptrdiff_t>(count);
  step.tokens.erase(step.tokens.begin(), step.tokens.begin() + cut);
  const auto logprobs_cut = std::min(cut, static_cast<std::ptrdiff_t>(step.logprobs.size()));
  step.logprobs.erase(step.logprobs.begin(), step.logprobs.begin() + logprobs_cut);
  step.position += static_cast<std::uint32_t>(count);
}

}  // namespace

RequestState::RequestState(protocol::GenerateSpec spec, const MigrationLimits& limits,
                           std::optional<TimePoint> deadline, TicketMaker ticket)
    : spec_(std::move(spec)), limits_(limits), deadline_(deadline), ticket_(std::move(ticket)) {
  for (const auto& choice : spec_.choices) choices_.push_back({choice.index, choice.accepted, 0, false, {}});
  PENSTOCK_CHECK(!choices_.empty());
}

void RequestState::start(TimePoint, Actions& out) {
  PENSTOCK_CHECK(phase_ == Phase::created);
  phase_ = Phase::placing;
  wanted_ = PlaceKind::first;
  out.push_back(WantPlace{PlaceKind::first, split_use(), std::nullopt});
}

void RequestState::on_placed(TimePoint now, const AttemptPlace& place, Actions& out) {
  if (phase_ != Phase::placing) return;
  const Holder* prefill = holders_.empty() ? nullptr : &holders_.front();
  if (wanted_ == PlaceKind::reoffer && prefill != nullptr && place.prefill == prefill->worker) {
    place_ = place;
    return dispatch_reoffer(now, out);
  }
  drop_holders(out, "placed elsewhere", std::nullopt);
  place_ = place;
  dispatch(now, out);
}

void RequestState::on_not_placed(TimePoint, Error error, Duration retry_after, Actions& out) {
  if (phase_ != Phase::placing) return;
  const bool is_lost = wanted_ != PlaceKind::first && error.code == ErrorCode::unavailable;
  end(out, Ended{Failed{std::move(error), retry_after, is_lost}}, "no worker");
}

void RequestState::on_step(TimePoint now, InstanceId worker, protocol::ChoiceStep&& step, Actions& out) {
  if (phase_ == Phase::ended) return;
  const Holder* holder = find_holder(worker);
  if (holder == nullptr || (step.attempt != holder->attempt && step.attempt != spec_.attempt)) return;
  Living* living = find_choice(step.choice);
  if (living == nullptr || living->is_finished) return;
  const bool has_prefill = holders_.size() > 1;
  if (step.usage && !usage_ && (holder->duty != Duty::decode || !has_prefill)) usage_ = step.usage;
  if (step.finish == protocol::FinishReason::aborted) {
    const Error error = make_error(ErrorCode::unavailable, "the worker stopped the request by itself");
    return fail_attempt(now, worker, error, {}, Failure::broken, out);
  }
  const std::size_t have = living->accepted.size();
  if (step.position > have) {
    if (holder->duty == Duty::decode && have == 0 && early_tokens() + step.tokens.size() <= limits_.early_tokens_max) {
      living->early.push_back(std::move(step));
      return;
    }
    ++gaps_;
    return fail_attempt(now, worker, make_error(ErrorCode::data_loss, "tokens are missing"), {}, Failure::broken, out);
  }
  if (step.position < have) {
    ++repeats_;
    const std::size_t known = have - step.position;
    if (step.tokens.size() < known || (step.tokens.size() == known && !step.finish)) return;
    drop_front(step, known);
  }
  const bool is_decode = holder->duty == Duty::decode;
  const std::uint32_t index = living->index;
  if (is_decode && !step.tokens.empty()) release_prefill(out);
  accept(now, *living, std::move(step), out);
  // What the decode worker sent before the first token came.
  std::vector<protocol::ChoiceStep> early = std::move(find_choice(index)->early);
  find_choice(index)->early.clear();
  for (auto& held : early) {
    if (phase_ == Phase::ended) return;
    on_step(now, place_.decode, std::move(held), out);
  }
  if (phase_ != Phase::ended) end_if_complete(worker, out);
}

void RequestState::on_progress(TimePoint now, InstanceId worker, const protocol::Progress& progress) {
  if (phase_ != Phase::running || worker != awaited_worker()) return;
  const Holder* holder = find_holder(worker);
  if (holder == nullptr || progress.attempt != holder->attempt) return;
  touch(now);
}

void RequestState::accept(TimePoint now, Living& living, protocol::ChoiceStep&& step, Actions& out) {
  living.accepted.insert(living.accepted.end(), step.tokens.begin(), step.tokens.end());
  living.counted = static_cast<std::uint32_t>(living.accepted.size());
  if (!step.tokens.empty()) has_visible_token_ = has_attempt_token_ = true;
  if (!step.prompt_logprobs.empty()) prompt_logprobs_given_ = true;
  if (step.finish) living.is_finished = true;
  touch(now);
  out.push_back(Deliver{std::move(step)});
}

void RequestState::release_prefill(Actions& out) {
  for (auto& holder : holders_) {
    if (holder.duty != Duty::prefill || holder.is_done) continue;
    holder.is_done = true;
    out.push_back(PrefillDone{holder.worker});
  }
}

void RequestState::end_if_complete(InstanceId finisher, Actions& out) {
  for (const auto& living : choices_) {
    if (!living.is_finished) return;
  }
  for (const auto& holder : holders_) {
    if (holder.duty == Duty::prefill) {
      if (!holder.is_done) {
        out.push_back(SendTo{holder.worker, protocol::Release{spec_.request, *transfer_, spec_.attempt}});
      }
    } else if (holder.worker != finisher) {
      out.push_back(SendTo{holder.worker, protocol::Abort{spec_.request, std::nullopt, 0, "finished"}});
    }
  }
  holders_.clear();
  phase_ = Phase::ended;
  out.push_back(Ended{Completed{}});
}

void RequestState::on_stop_string(TimePoint, std::uint32_t choice, std::uint32_t tokens_kept, Actions& out) {
  Living* living = find_choice(choice);
  if (living == nullptr) return;
  // Also after the end: the worker may have finished with the very step that completed the stop string.
  living->counted = std::min<std::uint32_t>(tokens_kept, static_cast<std::uint32_t>(living->accepted.size()));
  if (phase_ == Phase::ended) return;
  living->is_finished = true;
  for (const auto& holder : holders_) {
    if (holder.duty == Duty::prefill && holder.is_done) continue;
    out.push_back(SendTo{holder.worker, protocol::Abort{spec_.request, choice, tokens_kept, "stop string"}});
  }
  // Every decoding holder has been told, so none is left to abort.
  end_if_complete(holders_.empty() ? InstanceId{} : place_.decode, out);
}

void RequestState::on_request_error(TimePoint now, InstanceId worker, const protocol::RequestError& error,
                                    Actions& out) {
  if (phase_ == Phase::ended) return;
  const Holder* holder = find_holder(worker);
  if (holder == nullptr || (error.attempt != holder->attempt && error.attempt != spec_.attempt)) return;
  if (holder->duty == Duty::prefill && holder->is_done) return;
  if (is_final(error.error.code)) {
    drop_holders(out, "failed at another worker", worker);
    return end(out, Ended{Failed{error.error, error.retry_after, false}}, "failed");
  }
  const bool was_refused = is_refusal(error.error.code) && !has_visible_token_;
  fail_attempt(now, worker, error.error, error.retry_after, was_refused ? Failure::refused : Failure::broken, out);
}

void RequestState::on_transfer_status(TimePoint, InstanceId worker, const protocol::TransferStatus& status,
                                      Actions& out) {
  if (phase_ == Phase::ended || find_holder(worker) == nullptr) return;
  if (!transfer_ || status.transfer != *transfer_ || status.attempt != spec_.attempt) return;
  // Handed over, or gone: either way P can't offer it again. If it is gone, D says so with an error of its own.
  release_prefill(out);
}

void RequestState::on_worker_lost(TimePoint now, InstanceId worker, Actions& out) {
  if (phase_ == Phase::ended) return;
  const Holder* holder = find_holder(worker);
  if (holder == nullptr) return;
  if (holder->duty == Duty::prefill && holder->is_done) {
    std::erase_if(holders_, [&](const Holder& one) { return one.worker == worker; });
    return;
  }
  fail_attempt(now, worker, make_error(ErrorCode::unavailable, "the worker was lost"), {}, Failure::lost, out);
}

void RequestState::fail_attempt(TimePoint now, InstanceId worker, const Error& error, Duration retry_after,
                                Failure failure, Actions& out) {
  const Holder failed = *find_holder(worker);
  if (std::find(failed_.begin(), failed_.end(), worker) == failed_.end()) failed_.push_back(worker);
  const Holder* prefill = nullptr;
  for (const auto& holder : holders_) {
    if (holder.duty == Duty::prefill && !holder.is_done) prefill = &holder;
  }
  const bool can_reoffer = failed.duty == Duty::decode && prefill != nullptr && phase_ == Phase::running;
  if (failure == Failure::broken) {
    out.push_back(SendTo{worker, protocol::Abort{spec_.request, std::nullopt, 0, error.message}});
  }
  std::erase_if(holders_, [&](const Holder& one) { return one.worker == worker; });

  bool may_go_on = false;
  if (has_visible_token_) {
    may_go_on = migrations_ < limits_.migrations_max;
    if (may_go_on) ++migrations_;
  } else if (failure == Failure::refused) {
    may_go_on = refusals_ < limits_.refusals_max;
    if (may_go_on) ++refusals_;
  } else {
    may_go_on = retries_ < limits_.retries_max;
    if (may_go_on) ++retries_;
  }
  if (!may_go_on) {
    return end(out, Ended{Failed{error, retry_after, failure != Failure::refused}}, "given up");
  }
  for (auto& living : choices_) living.early.clear();
  progress_deadline_.reset();
  phase_ = Phase::placing;
  if (can_reoffer) {
    wanted_ = PlaceKind::reoffer;
    out.push_back(WantPlace{wanted_, SplitUse::allowed, holders_.front().worker});
    return;
  }
  drop_holders(out, "moved to another worker", std::nullopt);
  wanted_ = has_visible_token_ ? PlaceKind::migrate : failure == Failure::refused ? PlaceKind::again : PlaceKind::retry;
  (void)now;
  out.push_back(WantPlace{wanted_, split_use(), std::nullopt});
}

void RequestState::drop_holders(Actions& out, const char* reason, std::optional<InstanceId> except) {
  for (const auto& holder : holders_) {
    if (holder.worker == except || (holder.duty == Duty::prefill && holder.is_done)) continue;
    out.push_back(SendTo{holder.worker, protocol::Abort{spec_.request, std::nullopt, 0, reason}});
  }
  holders_.clear();
}

void RequestState::end(Actions& out, Ended ended, const char* reason) {
  drop_holders(out, reason, std::nullopt);
  phase_ = Phase::ended;
  progress_deadline_.reset();
  out.push_back(std::move(ended));
}

void RequestState::on_client_gone(TimePoint, Actions& out) {
  if (phase_ == Phase::ended) return;
  end(out, Ended{Cancelled{}}, "the client left");
}

void RequestState::on_timer(TimePoint now, Actions& out) {
  if (phase_ == Phase::ended || phase_ == Phase::created) return;
  if (deadline_ && now >= *deadline_) {
    return end(out, Ended{Failed{make_error(ErrorCode::deadline_exceeded, "the request's deadline passed"), {}, false}},
               "deadline");
  }
  if (phase_ != Phase::running || !progress_deadline_ || now < *progress_deadline_) return;
  fail_attempt(now, awaited_worker(), make_error(ErrorCode::unavailable, "the worker makes no progress"), {},
               Failure::broken, out);
}

/// Before the first token of a split attempt it is the prefill worker.
InstanceId RequestState::awaited_worker() const {
  for (const auto& holder : holders_) {
    if (holder.duty == Duty::prefill && !holder.is_done && !has_visible_token_) return holder.worker;
  }
  return place_.decode;
}

std::optional<TimePoint> RequestState::next_timer() const {
  if (phase_ == Phase::ended) return std::nullopt;
  if (!progress_deadline_ || phase_ != Phase::running) return deadline_;
  return deadline_ ? std::min(*deadline_, *progress_deadline_) : *progress_deadline_;
}

RequestUsage RequestState::usage() const {
  RequestUsage usage;
  usage.prompt_tokens = static_cast<std::uint32_t>(spec_.prompt.size());
  for (const auto& living : choices_) usage.completion_tokens += living.counted;
  if (usage_) usage.cached_tokens = std::min(usage_->cached_tokens, usage.prompt_tokens);
  return usage;
}

std::uint32_t RequestState::output_tokens(std::uint32_t choice) const {
  for (const auto& living : choices_) {
    if (living.index == choice) return living.counted;
  }
  return 0;
}

RequestState::Living* RequestState::find_choice(std::uint32_t index) {
  for (auto& living : choices_) {
    if (living.index == index) return &living;
  }
  return nullptr;
}

RequestState::Holder* RequestState::find_holder(InstanceId worker) {
  for (auto& holder : holders_) {
    if (holder.worker == worker) return &holder;
  }
  return nullptr;
}

std::uint64_t RequestState::early_tokens() const {
  std::uint64_t count = 0;
  for (const auto& living : choices_) {
    for (const auto& step : living.early) count += step.tokens.size();
  }
  return count;
}

}  // namespace penstock::router
