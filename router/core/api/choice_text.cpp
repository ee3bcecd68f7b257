#include "router/core/api/choice_text.hpp"

#include <algorithm>

namespace penstock::router {
namespace {

std::uint32_t count_characters(std::string_view text) {
  return static_cast<std::uint32_t>(std::count_if(
      text.begin(), text.end(), [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }));
}

text::SkipSpecial skip_special(const RequestFields& fields) {
  return fields.skip_special_tokens ? text::SkipSpecial::yes : text::SkipSpecial::no;
}

bool is_read(const OutputOptions& output) {
  return output.tools != ToolFormat::none || output.reasoning != ReasoningSplit::Begin::no_thought;
}

}  // namespace

std::string_view to_string(ChoiceFinish finish) {
  switch (finish) {
    case ChoiceFinish::stop:
      return "stop";
    case ChoiceFinish::length:
      return "length";
    case ChoiceFinish::tool_calls:
      return "tool_calls";
  }
  return "stop";
}

ChoiceText::ChoiceText(const ModelText& model, const RequestFields& fields, OutputOptions output)
    : model_(model),
      fields_(fields),
      decoder_(model.tokenizer, skip_special(fields), is_read(output) ? &model.marker_tokens : nullptr),
      matcher_(fields.stops, fields.include_stop ? text::IncludeStop::yes : text::IncludeStop::no) {
  if (is_read(output)) parser_ = std::make_unique<OutputParser>(std::move(output));
}

void ChoiceText::echo(const std::vector<TokenId>& prompt, const std::vector<protocol::PositionLogprobs>& logprobs,
                      ChoiceDelta& out) {
  text::IncrementalDecoder decoder(model_.tokenizer, skip_special(fields_));
  std::string all;
  for (std::size_t i = 0; i < prompt.size(); ++i) {
    if (fields_.logprobs) {
      ShownToken shown{prompt[i], decoded_characters_, std::nullopt};
      if (i > 0 && i - 1 < logprobs.size()) shown.logprobs = logprobs[i - 1];
      out.tokens.push_back(std::move(shown));
    }
    piece_.clear();
    decoder.push(prompt[i], piece_);
    decoded_characters_ += count_characters(piece_);
    all += piece_;
  }
  all += decoder.flush();
  out.text += all;
  decoder_.prime(prompt);
}

bool ChoiceText::ends_choice(TokenId token) const {
  const auto& stops = fields_.sampling.stop_token_ids;
  return (!fields_.sampling.ignore_eos && model_.end_tokens.contains(token)) ||
         std::find(stops.begin(), stops.end(), token) != stops.end();
}

std::optional<std::uint32_t> ChoiceText::push(const protocol::ChoiceStep& step, ChoiceDelta& out) {
  if (is_finished_) return std::nullopt;
  for (std::size_t i = 0; i < step.tokens.size(); ++i) {
    ++output_tokens_;
    const bool is_last = i + 1 == step.tokens.size();
    // The token that ended the choice is a signal, not text.
    if (is_last && step.finish == protocol::FinishReason::stop && ends_choice(step.tokens[i])) break;
    push_token(step.tokens[i], i < step.logprobs.size() ? &step.logprobs[i] : nullptr, out);
    if (parser_) {
      parser_->push(out.text, out.output);
      out.text.clear();
    }
    if (matcher_.stopped() || (parser_ && parser_->is_full())) {
      finish(ChoiceFinish::stop, out);
      return output_tokens_;
    }
  }
  if (step.finish) {
    flush(out);
    finish(*step.finish == protocol::FinishReason::length ? ChoiceFinish::length : ChoiceFinish::stop, out);
  }
  return std::nullopt;
}

// A call that was cut is told as such: the length wins over the call.
void ChoiceText::finish(ChoiceFinish finish, ChoiceDelta& out) {
  is_finished_ = true;
  out.finish = finish;
  if (matcher_.stopped()) out.stop_string = matcher_.stop_index();
  if (!parser_) return;
  parser_->push(out.text, out.output);
  parser_->finish(out.output);
  out.text.clear();
  if (finish == ChoiceFinish::stop && parser_->has_calls()) out.finish = ChoiceFinish::tool_calls;
}

void ChoiceText::push_token(TokenId token, const protocol::PositionLogprobs* logprobs, ChoiceDelta& out) {
  piece_.clear();
  decoder_.push(token, piece_);
  const std::size_t begin = decoded_bytes_;
  decoded_bytes_ += piece_.size();
  if (logprobs != nullptr && fields_.logprobs) {
    waiting_.push_back({begin, decoded_bytes_, ShownToken{token, decoded_characters_, *logprobs}});
  }
  if (fields_.logprobs) decoded_characters_ += count_characters(piece_);
  const std::size_t before = out.text.size();
  matcher_.push(piece_, out.text);
  shown_bytes_ += out.text.size() - before;
  if (matcher_.stopped()) {
    // A token that the stop string begins in is shown with the part before it; those wholly within it are not.
    while (!waiting_.empty() && waiting_.back().text_begin >= shown_bytes_) waiting_.pop_back();
    release(decoded_bytes_, out);
  } else {
    release(shown_bytes_, out);
  }
}

void ChoiceText::release(std::size_t shown_end, ChoiceDelta& out) {
  std::size_t count = 0;
  while (count < waiting_.size() && waiting_[count].text_end <= shown_end) {
    out.tokens.push_back(std::move(waiting_[count].shown));
    ++count;
  }
  waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(count));
}

void ChoiceText::flush(ChoiceDelta& out) {
  piece_ = decoder_.flush();
  // The end of the text is no token's, so the matcher sees it without counting one.
  matcher_.push(piece_, out.text);
  if (!matcher_.stopped()) matcher_.flush(out.text);
  decoded_bytes_ += piece_.size();
  release(decoded_bytes_, out);
}

}  // namespace penstock::router
