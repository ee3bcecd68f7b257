// Sending a request: to one worker, to a prefill and a decode worker at once, or again to a new decode worker while the
// prefill worker still holds the KV.
#include <algorithm>

#include "common/base/check.hpp"
#include "router/core/migration/request_state.hpp"

namespace penstock::router {
namespace {

// One transfer a dispatch. The request id is random, so what is made of it is as unlikely to meet another.
TransferId transfer_of(RequestId request, std::uint32_t attempt) {
  return {request.high, request.low ^ (0x9E3779B97F4A7C15ull * (attempt + 1))};
}

}  // namespace

SplitUse RequestState::split_use() const {
  // A prefill worker gives every choice the same next token position, and scores no prompt.
  if (spec_.sampling.prompt_logprobs || spec_.sampling.tokens_max <= 1) return SplitUse::forbidden;
  for (const auto& living : choices_) {
    if (!living.accepted.empty()) return SplitUse::forbidden;
  }
  return SplitUse::allowed;
}

protocol::GenerateSpec RequestState::current_spec(TimePoint now) const {
  protocol::GenerateSpec spec = spec_;
  spec.choices.clear();
  for (const auto& living : choices_) {
    if (!living.is_finished) spec.choices.push_back({living.index, living.accepted});
  }
  if (prompt_logprobs_given_) spec.sampling.prompt_logprobs.reset();
  if (deadline_) spec.deadline = std::max<Duration>(*deadline_ - now, std::chrono::milliseconds(1));
  return spec;
}

protocol::TransferRoute RequestState::route_to(Peer peer) const {
  protocol::TransferRoute route;
  route.transfer = *transfer_;
  route.attempt = spec_.attempt;
  route.peer = peer == Peer::decode ? place_.decode : *place_.prefill;
  route.peer_address = peer == Peer::decode ? place_.decode_address : place_.prefill_address;
  if (ticket_) route.ticket = ticket_({*transfer_, spec_.attempt, *place_.prefill, place_.decode});
  return route;
}

void RequestState::dispatch(TimePoint now, Actions& out) {
  if (has_dispatched_) ++spec_.attempt;
  has_dispatched_ = true;
  phase_ = Phase::running;
  holders_.clear();
  transfer_.reset();
  has_attempt_token_ = false;
  for (auto& living : choices_) living.early.clear();
  if (split_use() == SplitUse::forbidden) place_.prefill.reset();
  if (place_.prefill) {
    transfer_ = transfer_of(spec_.request, spec_.attempt);
    holders_.push_back({place_.decode, spec_.attempt, Duty::decode, false});
    holders_.push_back({*place_.prefill, spec_.attempt, Duty::prefill, false});
    protocol::GenerateSpec spec = current_spec(now);
    out.push_back(SendTo{place_.decode, protocol::Expect{spec, route_to(Peer::prefill)}});
    out.push_back(SendTo{*place_.prefill, protocol::Prefill{std::move(spec), route_to(Peer::decode)}});
  } else {
    holders_.push_back({place_.decode, spec_.attempt, Duty::whole, false});
    out.push_back(SendTo{place_.decode, protocol::Generate{current_spec(now)}});
  }
  touch(now);
}

void RequestState::dispatch_reoffer(TimePoint now, Actions& out) {
  ++spec_.attempt;
  phase_ = Phase::running;
  PENSTOCK_CHECK(holders_.size() == 1 && transfer_.has_value(), "holders", holders_.size());
  holders_.push_back({place_.decode, spec_.attempt, Duty::decode, false});
  for (auto& living : choices_) living.early.clear();
  // The new decode worker learns the first tokens from the last offer, as the old one did.
  protocol::GenerateSpec spec = current_spec(now);
  for (auto& choice : spec.choices) choice.accepted.clear();
  out.push_back(SendTo{place_.decode, protocol::Expect{std::move(spec), route_to(Peer::prefill)}});
  out.push_back(SendTo{*place_.prefill, protocol::Reoffer{spec_.request, route_to(Peer::decode)}});
  touch(now);
}

void RequestState::touch(TimePoint now) {
  progress_deadline_ = now + (has_attempt_token_ ? limits_.no_progress_decode : limits_.no_progress_prefill);
}

}  // namespace penstock::router
