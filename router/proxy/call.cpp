#include "router/proxy/call.hpp"

#include <algorithm>

#include "common/base/id.hpp"

namespace penstock::router {

Call::Call(Dispatcher& dispatcher, ServedModel& model, ValidatedRequest request, const CallSettings& settings,
           CallOrigin origin, std::function<void()> changed)
    : dispatcher_(dispatcher),
      model_(model),
      text_(model.text),
      request_(std::move(request)),
      settings_(settings),
      origin_(std::move(origin)),
      changed_(std::move(changed)),
      encoder_(make_encoder(*request_, *text_, to_string(random_id<RequestId>()), origin_.created)) {}

Call::~Call() {
  is_closing_ = true;
  for (auto& sequence : sequences_) dispatcher_.cancel(*sequence);
}

void Call::start(PreparedRequest prepared, std::vector<std::vector<BlockHash>> blocks) {
  const std::size_t choices = prepared.prompts.size() * request_->n;
  texts_.reserve(choices);
  for (std::size_t i = 0; i < choices; ++i) {
    OutputOptions output = prepared.prompts[i / request_->n].output;
    output.id_seed = origin_.id_seed + i;
    texts_.emplace_back(*text_, *request_, std::move(output));
  }
  deltas_.resize(choices);
  prompt_texts_.resize(prepared.prompts.size());
  if (!request_->has_seed) prepared.sampling.seed = origin_.seed;
  for (std::uint32_t i = 0; i < prepared.prompts.size(); ++i) {
    prompt_texts_[i].echoed.resize(request_->n, false);
    add_sequence(i, std::move(prepared.prompts[i]), std::move(blocks[i]), prepared.sampling);
  }
  running_ = sequences_.size();
  // A sequence that is refused at once ends the call; the rest is then not started.
  for (std::size_t i = 0; i < sequences_.size() && !is_done_; ++i) dispatcher_.start(*sequences_[i]);
}

void Call::add_sequence(std::uint32_t index, PreparedPrompt prompt, std::vector<BlockHash> blocks,
                        const protocol::SamplingParams& sampling) {
  protocol::GenerateSpec spec;
  spec.request = random_id<RequestId>();
  spec.prompt = std::move(prompt.tokens);
  spec.sampling = sampling;
  spec.sampling.tokens_max = prompt.tokens_max;
  spec.cache_salt = origin_.cache_salt;
  spec.priority = request_->priority;
  spec.trace = origin_.trace;
  for (std::uint32_t choice = 0; choice < request_->n; ++choice) spec.choices.push_back({choice, {}});
  auto sequence = std::make_unique<Sequence>(
      *this, model_, RequestState(std::move(spec), settings_.migration, origin_.deadline, settings_.ticket));
  sequence->index = index;
  sequence->client_request_id = origin_.client_request_id;
  sequence->tenant = origin_.tenant;
  sequence->priority = request_->priority;
  sequence->blocks = std::move(blocks);
  sequence->arrived = origin_.arrived;
  sequence->deadline = origin_.deadline;
  sequences_.push_back(std::move(sequence));
}

void Call::client_gone() {
  for (auto& sequence : sequences_) dispatcher_.cancel(*sequence);
}

void Call::take_output(std::string& out) {
  out.clear();
  out.swap(output_);
}

void Call::on_tokens(Sequence& sequence, protocol::ChoiceStep&& step) {
  if (is_done_ || is_closing_ || step.choice >= request_->n) return;
  const std::uint32_t index = sequence.index * request_->n + step.choice;
  PromptText& prompt = prompt_texts_[sequence.index];
  if (!step.prompt_logprobs.empty()) prompt.logprobs = std::move(step.prompt_logprobs);
  if (request_->echo && !prompt.echoed[step.choice]) {
    prompt.echoed[step.choice] = true;
    texts_[index].echo(sequence.state.spec().prompt, prompt.logprobs, deltas_[index]);
  }
  const auto kept = texts_[index].push(step, deltas_[index]);
  if (request_->stream) emit(index);
  if (kept) dispatcher_.stop_string(sequence, step.choice, *kept);
}

void Call::emit(std::uint32_t choice) {
  ChoiceDelta& delta = deltas_[choice];
  if (delta.text.empty() && delta.output.empty() && delta.tokens.empty() && !delta.finish) return;
  const bool was_empty = output_.empty();
  encoder_->append_chunk(choice, delta, encoder_->needs_usage() ? usage() : ClientUsage{}, output_);
  delta.clear();
  if (output_.size() > settings_.output_bytes_max) {
    is_overrun_ = true;
    return fail(server_overloaded("The client does not read its stream.", {}));
  }
  if (was_empty) changed_();
}

void Call::on_ended(Sequence&, const Ended& ended) {
  if (running_ > 0) --running_;
  if (is_closing_ || is_done_) return;
  if (const auto* failed = std::get_if<Failed>(&ended.outcome)) {
    const bool is_lost = failed->is_worker_lost && failed->error.code != ErrorCode::deadline_exceeded;
    ApiError error = is_lost ? worker_lost() : from_error(failed->error, failed->retry_after);
    if (failed->error.code == ErrorCode::deadline_exceeded && failed->retry_after > Duration{}) {
      error = queue_timeout(failed->retry_after);
    }
    if (is_lost && !failed->error.message.empty()) error.message += " (" + failed->error.message + ")";
    return fail(std::move(error));
  }
  if (std::holds_alternative<Cancelled>(ended.outcome)) return end();
  if (running_ == 0) end();
}

void Call::fail(ApiError error) {
  error_ = std::move(error);
  end();
}

void Call::end() {
  is_done_ = true;
  if (!error_ && request_->stream) encoder_->append_end(usage(), output_);
  is_closing_ = true;
  for (auto& sequence : sequences_) dispatcher_.cancel(*sequence);
  changed_();
}

std::string Call::whole() const {
  std::vector<PromptScores> scores;
  if (request_->prompt_logprobs) {
    for (const auto& prompt : prompt_texts_) scores.emplace_back(prompt.logprobs);
  }
  return encoder_->whole(deltas_, usage(), scores);
}

ClientUsage Call::usage() const {
  ClientUsage usage;
  for (const auto& sequence : sequences_) {
    const RequestUsage one = sequence->state.usage();
    usage.prompt_tokens += one.prompt_tokens;
    usage.completion_tokens += one.completion_tokens;
    usage.cached_tokens += one.cached_tokens;
  }
  return usage;
}

const DecisionPtr& Call::route() const {
  return sequences_.front()->route;
}

std::uint32_t Call::migrations() const {
  std::uint32_t count = 0;
  for (const auto& sequence : sequences_) count += sequence->state.migrations();
  return count;
}

}  // namespace penstock::router
