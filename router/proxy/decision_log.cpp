#include "router/proxy/decision_log.hpp"

#include <algorithm>

#include "common/json/writer.hpp"

namespace penstock::router {
namespace {

constexpr std::size_t candidates_max = 64;

void write_candidate(const Candidate& candidate, const std::string& address, json::Writer& writer) {
  writer.begin_object();
  writer.field("worker", address);
  writer.field("duty", to_string(candidate.duty));
  writer.field("ineligible", to_string(candidate.ineligible));
  writer.field("cached_tokens", candidate.cached_tokens);
  writer.field("cache_credit", candidate.cache_credit);
  writer.field("uncached", candidate.uncached);
  writer.field("home", candidate.home);
  writer.field("wait", candidate.wait);
  writer.field("decode", candidate.decode);
  writer.field("recent", candidate.recent);
  writer.field("barrier", candidate.barrier);
  writer.field("slow_start", candidate.slow_start);
  writer.field("cost", candidate.cost);
  writer.end_object();
}

std::string_view outcome_name(Outcome outcome) {
  switch (outcome) {
    case Outcome::placed:
      return "placed";
    case Outcome::must_queue:
      return "must_queue";
    case Outcome::rejected:
      return "rejected";
  }
  return "?";
}

void write_decision(const Decision& decision, json::Writer& writer) {
  const Placement& placement = decision.placement;
  writer.begin_object();
  writer.field("request_id", decision.client_request_id);
  writer.field("request", to_string(decision.request));
  writer.field("model", decision.model);
  writer.field("kind", to_string(decision.kind));
  writer.field("at", format_iso8601(decision.at));
  writer.field("took_us", static_cast<double>(decision.took.count()) / 1000.0);
  writer.field("outcome", outcome_name(placement.outcome));
  writer.field("policy", to_string(placement.policy));
  writer.field("why", placement.why);
  writer.field("worker", decision.worker);
  if (!decision.prefill.empty()) writer.field("prefill", decision.prefill);
  writer.field("prompt_tokens", decision.prompt_tokens);
  writer.field("cached_tokens", placement.cached_tokens);
  writer.field("uncached_tokens", placement.uncached_tokens);
  writer.field("cached_tokens_best", placement.cached_tokens_best);
  if (placement.outcome == Outcome::rejected) writer.field("reason", placement.error.message);
  writer.key("candidates");
  writer.begin_array();
  for (std::size_t i = 0; i < placement.candidates.size(); ++i) {
    write_candidate(placement.candidates[i], decision.candidates[i], writer);
  }
  writer.end_array();
  writer.end_object();
}

}  // namespace

std::string_view to_string(PlaceKind kind) {
  switch (kind) {
    case PlaceKind::first:
      return "first";
    case PlaceKind::again:
      return "again";
    case PlaceKind::retry:
      return "retry";
    case PlaceKind::migrate:
      return "migrate";
    case PlaceKind::reoffer:
      return "reoffer";
  }
  return "?";
}

void shorten(Placement& placement) {
  auto& candidates = placement.candidates;
  if (candidates.size() <= candidates_max) return;
  const auto chosen = std::find_if(candidates.begin(), candidates.end(),
                                   [&](const Candidate& one) { return one.worker == placement.worker; });
  if (chosen - candidates.begin() >= static_cast<std::ptrdiff_t>(candidates_max)) {
    std::swap(*chosen, candidates[candidates_max - 1]);
  }
  candidates.resize(candidates_max);
  candidates.shrink_to_fit();
}

void DecisionLog::add(DecisionPtr decision) {
  if (entries_max_ == 0) return;
  entries_.push_back(std::move(decision));
  if (entries_.size() > entries_max_) entries_.pop_front();
}

std::string DecisionLog::to_json(std::size_t count) const {
  std::string out;
  json::Writer writer(out);
  writer.begin_object();
  writer.key("decisions");
  writer.begin_array();
  for (auto entry = entries_.rbegin(); entry != entries_.rend() && count > 0; ++entry, --count) {
    write_decision(**entry, writer);
  }
  writer.end_array();
  writer.end_object();
  return out;
}

std::string route_header(const Decision& decision) {
  std::string out = "worker=" + decision.worker;
  if (!decision.prefill.empty()) out += "; prefill=" + decision.prefill;
  out += "; policy=" + std::string(to_string(decision.placement.policy));
  out += "; why=\"" + std::string(decision.placement.why) + "\"";
  out += "; prompt=" + std::to_string(decision.prompt_tokens);
  out += "; cached=" + std::to_string(decision.placement.cached_tokens);
  for (const auto& candidate : decision.placement.candidates) {
    if (candidate.worker != decision.placement.worker) continue;
    out += "; cost=" + std::to_string(candidate.cost);
    break;
  }
  return out;
}

}  // namespace penstock::router
