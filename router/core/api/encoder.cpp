#include "router/core/api/encoder.hpp"

#include <algorithm>
#include <cmath>

#include "common/json/writer.hpp"
#include "router/core/api/anthropic_encoder.hpp"
#include "router/core/api/message_writer.hpp"

namespace penstock::router {
namespace {

// What OpenAI's API shows for a token that can't be drawn; JSON has no infinity.
constexpr double logprob_lowest = -9999.0;

const std::vector<ShownToken> no_tokens;
constexpr std::optional<ChoiceFinish> no_finish;

void append_logprob(float logprob, std::string& out) {
  json::append_number(out, std::isfinite(logprob) ? static_cast<double>(logprob) : logprob_lowest);
}

void append_finish(const std::optional<ChoiceFinish>& finish, std::string& out) {
  if (!finish) {
    out += "null";
    return;
  }
  out += '"';
  out += to_string(*finish);
  out += '"';
}

void append_bytes(std::string_view bytes, std::string& out) {
  out += '[';
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (i > 0) out += ',';
    json::append_number(out, static_cast<std::uint64_t>(static_cast<unsigned char>(bytes[i])));
  }
  out += ']';
}

std::string identity(std::string_view id_prefix, std::string_view id, std::string_view object, std::int64_t created,
                     std::string_view model) {
  std::string out = "\"id\":\"";
  out += id_prefix;
  json::append_escaped(out, id);
  out += "\",\"object\":\"";
  out += object;
  out += "\",\"created\":";
  json::append_number(out, created);
  out += ",\"model\":";
  json::append_quoted(out, model);
  return out;
}

}  // namespace

void append_usage(const ClientUsage& usage, std::string& out) {
  out += "{\"prompt_tokens\":";
  json::append_number(out, usage.prompt_tokens);
  out += ",\"completion_tokens\":";
  json::append_number(out, usage.completion_tokens);
  out += ",\"total_tokens\":";
  json::append_number(out, usage.prompt_tokens + usage.completion_tokens);
  out += ",\"prompt_tokens_details\":{\"cached_tokens\":";
  json::append_number(out, usage.cached_tokens);
  out += "}}";
}

std::unique_ptr<AnswerEncoder> make_encoder(const RequestFields& fields, const ModelText& model, std::string_view id,
                                            std::int64_t created) {
  if (fields.endpoint == Endpoint::messages) return std::make_unique<AnthropicEncoder>(fields, id);
  return std::make_unique<Encoder>(fields, model, id, created);
}

Encoder::Encoder(const RequestFields& fields, const ModelText& model, std::string_view id, std::int64_t created)
    : fields_(fields), model_(model), has_begun_(fields.prompts.size() * fields.n, false) {
  const bool is_chat = fields.endpoint == Endpoint::chat;
  const std::string_view id_prefix = is_chat ? "chatcmpl-" : "cmpl-";
  identity_ = identity(id_prefix, id, is_chat ? "chat.completion" : "text_completion", created, fields.model);
  prefix_ = "data: {" +
            identity(id_prefix, id, is_chat ? "chat.completion.chunk" : "text_completion", created, fields.model) +
            ",\"choices\":[";
}

// One loop with everything in it: this runs for every token, and calls to small functions cost a tenth of it.
void Encoder::append_chunk(std::uint32_t index, const ChoiceDelta& delta, const ClientUsage& usage, std::string& out) {
  // Official clients keep choices in a list that grows by one: a choice must not be seen before those below it.
  const bool is_chat = fields_.endpoint == Endpoint::chat;
  if (is_chat && !has_begun_[index] && index > 0 && !has_begun_[index - 1]) append_chunk(index - 1, {}, usage, out);
  std::size_t at = 0;
  do {
    const OutputEvent* event = delta.output.empty() ? nullptr : &delta.output[at];
    const bool is_last = ++at >= delta.output.size();
    out += prefix_;
    out += "{\"index\":";
    json::append_number(out, std::uint64_t{index});
    if (is_chat) {
      out += ",\"delta\":{";
      const bool is_first = !has_begun_[index];
      if (is_first) {
        has_begun_[index] = true;
        out += "\"role\":\"assistant\",";
      }
      if (event != nullptr) {
        if (is_first && event->kind != OutputEvent::Kind::content) out += "\"content\":null,";
        append_event_delta(*event, out);
      } else if (is_first || !delta.text.empty()) {
        out += "\"content\":";
        json::append_quoted(out, delta.text);
      }
      out += '}';
    } else {
      out += ",\"text\":";
      json::append_quoted(out, delta.text);
    }
    out += ",\"logprobs\":";
    append_logprobs(is_last ? delta.tokens : no_tokens, out);
    out += ",\"finish_reason\":";
    append_finish(is_last ? delta.finish : no_finish, out);
    out += "}]";
    switch (fields_.stream_usage) {
      case StreamUsage::none:
        break;
      case StreamUsage::last_chunk:
        out += ",\"usage\":null";
        break;
      case StreamUsage::every_chunk:
        out += ",\"usage\":";
        append_usage(usage, out);
        break;
    }
    out += "}\n\n";
  } while (at < delta.output.size());
}

void Encoder::append_end(const ClientUsage& usage, std::string& out) {
  if (fields_.stream_usage != StreamUsage::none) {
    out += prefix_;
    out += "],\"usage\":";
    append_usage(usage, out);
    out += "}\n\n";
  }
  out += "data: [DONE]\n\n";
}

void Encoder::append_error(const ApiError& error, std::string& out) const {
  out += "data: ";
  out += to_json(error);
  out += "\n\n";
}

std::string Encoder::whole(const std::vector<ChoiceDelta>& choices, const ClientUsage& usage,
                           const std::vector<PromptScores>& scores) const {
  std::string out = "{" + identity_ + ",\"choices\":[";
  for (std::size_t i = 0; i < choices.size(); ++i) {
    if (i > 0) out += ',';
    out += "{\"index\":";
    json::append_number(out, static_cast<std::uint64_t>(i));
    if (fields_.endpoint == Endpoint::chat) {
      out += ",\"message\":{\"role\":\"assistant\",";
      if (choices[i].output.empty()) {
        out += "\"content\":";
        json::append_quoted(out, choices[i].text);
      } else {
        append_message(choices[i].output, out);
      }
      out += ",\"refusal\":null}";
    } else {
      out += ",\"text\":";
      json::append_quoted(out, choices[i].text);
    }
    out += ",\"logprobs\":";
    append_logprobs(choices[i].tokens, out);
    out += ",\"finish_reason\":";
    append_finish(choices[i].finish, out);
    if (fields_.endpoint == Endpoint::completions && !scores.empty()) {
      out += ",\"prompt_logprobs\":";
      append_prompt_logprobs(scores[i / fields_.n], out);
    }
    out += '}';
  }
  out += ']';
  if (fields_.endpoint == Endpoint::chat && !scores.empty()) {
    out += ",\"prompt_logprobs\":";
    append_prompt_logprobs(scores.front(), out);
  }
  out += ",\"usage\":";
  append_usage(usage, out);
  out += '}';
  return out;
}

void Encoder::append_logprobs(const std::vector<ShownToken>& tokens, std::string& out) const {
  if (!fields_.logprobs) {
    out += "null";
  } else if (fields_.endpoint == Endpoint::chat) {
    append_chat_logprobs(tokens, out);
  } else {
    append_completion_logprobs(tokens, out);
  }
}

void Encoder::append_token_entry(const protocol::TokenLogprob& entry, std::string& out) const {
  const std::string_view bytes = model_.tokenizer->token_bytes(entry.token);
  out += "\"token\":";
  json::append_quoted(out, bytes);
  out += ",\"logprob\":";
  append_logprob(entry.logprob, out);
  out += ",\"bytes\":";
  append_bytes(bytes, out);
}

void Encoder::append_chat_logprobs(const std::vector<ShownToken>& tokens, std::string& out) const {
  out += "{\"content\":[";
  bool is_first = true;
  for (const auto& shown : tokens) {
    if (!shown.logprobs) continue;
    if (!is_first) out += ',';
    is_first = false;
    out += '{';
    append_token_entry(shown.logprobs->chosen, out);
    out += ",\"top_logprobs\":[";
    const std::size_t count = std::min<std::size_t>(shown.logprobs->top.size(), *fields_.logprobs);
    for (std::size_t i = 0; i < count; ++i) {
      out += i > 0 ? ",{" : "{";
      append_token_entry(shown.logprobs->top[i], out);
      out += '}';
    }
    out += "]}";
  }
  out += "],\"refusal\":null}";
}

// As vLLM has it: a map from token id for each token of the prompt, null for the first.
void Encoder::append_prompt_logprobs(PromptScores scores, std::string& out) const {
  const auto add = [&](const protocol::TokenLogprob& entry, std::uint64_t rank) {
    out += '"';
    json::append_number(out, std::uint64_t{entry.token});
    out += "\":{\"logprob\":";
    append_logprob(entry.logprob, out);
    out += ",\"rank\":";
    json::append_number(out, rank);
    out += ",\"decoded_token\":";
    json::append_quoted(out, model_.tokenizer->token_bytes(entry.token));
    out += '}';
  };
  out += "[null";
  for (const auto& position : scores) {
    out += ",{";
    add(position.chosen, position.rank);
    const std::size_t count = std::min<std::size_t>(position.top.size(), *fields_.prompt_logprobs);
    for (std::size_t i = 0; i < count; ++i) {
      if (position.top[i].token == position.chosen.token) continue;
      out += ',';
      add(position.top[i], i + 1);
    }
    out += '}';
  }
  out += ']';
}

// A map from text to log probability with the chosen token and the most likely ones. Two tokens may have the same text
// (halves of a character); the likelier one stays.
void Encoder::append_top_map(const protocol::PositionLogprobs& logprobs, std::string& out) const {
  std::vector<std::string> seen;
  auto add = [&](const protocol::TokenLogprob& entry) {
    std::string key;
    json::append_quoted(key, model_.tokenizer->token_bytes(entry.token));
    if (std::find(seen.begin(), seen.end(), key) != seen.end()) return;
    if (!seen.empty()) out += ',';
    out += key;
    out += ':';
    append_logprob(entry.logprob, out);
    seen.push_back(std::move(key));
  };
  out += '{';
  const std::size_t count = std::min<std::size_t>(logprobs.top.size(), *fields_.logprobs);
  for (std::size_t i = 0; i < count; ++i) add(logprobs.top[i]);
  add(logprobs.chosen);
  out += '}';
}

void Encoder::append_completion_logprobs(const std::vector<ShownToken>& tokens, std::string& out) const {
  auto list = [&](std::string_view name, auto&& append_item) {
    out += '"';
    out += name;
    out += "\":[";
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (i > 0) out += ',';
      append_item(tokens[i]);
    }
    out += ']';
  };
  out += '{';
  list("tokens",
       [&](const ShownToken& shown) { json::append_quoted(out, model_.tokenizer->token_bytes(shown.token)); });
  out += ',';
  list("token_logprobs", [&](const ShownToken& shown) {
    if (shown.logprobs) {
      append_logprob(shown.logprobs->chosen.logprob, out);
    } else {
      out += "null";
    }
  });
  out += ',';
  list("top_logprobs", [&](const ShownToken& shown) {
    if (shown.logprobs) {
      append_top_map(*shown.logprobs, out);
    } else {
      out += "null";
    }
  });
  out += ',';
  list("text_offset", [&](const ShownToken& shown) { json::append_number(out, std::uint64_t{shown.text_offset}); });
  out += '}';
}

}  // namespace penstock::router
