// What the scheduler does not take: requests that are wrong, that can never run, or that find no room now.
#include <algorithm>
#include <set>

#include "worker/core/sampling/sampler.hpp"
#include "worker/core/scheduler/request.hpp"

namespace penstock::worker {

namespace {

Error invalid(std::string message) {
  return make_error(ErrorCode::invalid_argument, std::move(message));
}

std::size_t accepted_max(const protocol::GenerateSpec& spec) {
  std::size_t most = 0;
  for (const auto& choice : spec.choices) most = std::max(most, choice.accepted.size());
  return most;
}

}  // namespace

std::optional<Error> Scheduler::find_fault(const protocol::GenerateSpec& spec, bool transfers) const {
  if (draining_) return make_error(ErrorCode::unavailable, "the worker is draining");
  if (transfers && !config_.transfer) return make_error(ErrorCode::unsupported, "this worker has no KV transfer");
  if (!spec.adapter.empty()) return make_error(ErrorCode::not_found, "unknown adapter \"" + spec.adapter + "\"");
  if (const auto valid = validate(spec.sampling, {.vocabulary_size = config_.vocabulary_size}); !valid) {
    return valid.error();
  }
  if (spec.prompt.empty()) return invalid("the prompt is empty");
  if (spec.choices.empty() || spec.choices.size() > 128) return invalid("n must be between 1 and 128");
  std::set<std::uint32_t> indices;
  std::vector<const std::vector<TokenId>*> texts{&spec.prompt};
  for (const auto& choice : spec.choices) {
    if (!indices.insert(choice.index).second) return invalid("two choices have the same index");
    texts.push_back(&choice.accepted);
  }
  for (const auto* text : texts) {
    for (const TokenId token : *text) {
      if (token < config_.vocabulary_size) continue;
      return invalid("token id " + std::to_string(token) + " is not below " + std::to_string(config_.vocabulary_size));
    }
  }
  const std::size_t scored = spec.sampling.tokens_max == 0 ? 0 : 1;
  if (spec.prompt.size() + scored > config_.context_tokens) {
    return invalid("the prompt has " + std::to_string(spec.prompt.size()) + " tokens; the context of " +
                   std::to_string(config_.context_tokens) + " has no room for it and one more");
  }
  const std::size_t room = config_.context_tokens - spec.prompt.size();
  if (accepted_max(spec) > std::min<std::size_t>(room, spec.sampling.tokens_max)) {
    return invalid("more tokens accepted than max_tokens or the context allow");
  }
  if (transfers && spec.sampling.tokens_max == 0) return invalid("max_tokens 0 cannot be split over two workers");
  if (transfers && spec.choices.size() > 1 && accepted_max(spec) > 0) {
    return invalid("several resumed choices cannot be split over two workers");
  }
  return std::nullopt;
}

/// Forks of a prompt and choices whose KV is on its way wait too, and hold memory.
std::size_t Scheduler::choices_without_row() const {
  std::size_t choices = 0;
  for (const auto& [id, request] : requests_) choices += request->sequences.size();
  return choices - running_.size();
}

std::optional<Error> Scheduler::find_shortage(const protocol::GenerateSpec& spec, bool sends) const {
  const std::size_t room = config_.context_tokens - spec.prompt.size();
  const std::size_t outputs = std::min<std::size_t>(spec.sampling.tokens_max, room);
  // The last token drawn is never computed.
  const std::uint32_t need = cache_.blocks_for(spec.prompt.size() + (outputs > 0 ? outputs - 1 : 0));
  if (need > config_.blocks) {
    return invalid("prompt and max_tokens need " + std::to_string(need) + " KV blocks; this worker has " +
                   std::to_string(config_.blocks) + ", so the request can never run");
  }
  if (choices_without_row() + spec.choices.size() > config_.waiting_max) {
    return make_error(ErrorCode::resource_exhausted,
                      "the waiting queue is full (" + std::to_string(config_.waiting_max) + " choices)");
  }
  if (!sends) return std::nullopt;
  std::size_t held = 0;
  for (const auto& [key, send] : sends_) held += cache_.blocks_for(send.total);
  const auto limit = static_cast<std::size_t>(config_.pinned_share_max * static_cast<float>(config_.blocks));
  const std::size_t wanted = cache_.blocks_for(spec.prompt.size() + accepted_max(spec)) + spec.choices.size() - 1;
  if (held > 0 && held + wanted > limit) {
    return make_error(ErrorCode::resource_exhausted, "too much KV waits for decode workers: " + std::to_string(held) +
                                                         " of at most " + std::to_string(limit) + " blocks");
  }
  return std::nullopt;
}

void Scheduler::refuse(const protocol::GenerateSpec& spec, Error error) {
  const bool later = error.code == ErrorCode::resource_exhausted;
  ++output_.refused;
  output_.errors.push_back(
      {spec.request, spec.attempt, std::move(error), later ? config_.retry_after : Duration::zero()});
  output_.ended.emplace_back(spec.request, spec.attempt);
}

}  // namespace penstock::worker
