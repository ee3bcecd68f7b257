// From request to token ids, and from tokens to what clients are sent.
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json/serialize.hpp>

#include "common/json/json.hpp"
#include "router/core/api/encoder.hpp"
#include "router/core/api/prepare.hpp"
#include "router/core/api/trace_context.hpp"
#include "tests/support/byte_tokenizer.hpp"

namespace penstock::router {
namespace {

std::shared_ptr<const ModelText> model() {
  static const auto built = [] {
    protocol::ModelCard card;
    card.name = "m";
    card.context_tokens = 256;
    card.vocabulary_size = test::byte_vocabulary_size;
    card.eos_tokens = {test::im_end};
    card.eos_text = "<|im_end|>";
    card.default_temperature = 0.25f;
    return ModelText::build(card, test::byte_tokenizer_json(), test::chat_template_source(), {}).value();
  }();
  return built;
}

ValidatedRequest request(Endpoint endpoint, const std::string& more) {
  const std::string prompt =
      endpoint == Endpoint::chat ? R"("messages":[{"role":"user","content":"hi"}])" : R"("prompt":"hi")";
  return parse_request(endpoint, R"({"model":"m",)" + prompt + more + "}", {}).value();
}

std::vector<TokenId> bytes(std::string_view text) {
  std::vector<TokenId> ids;
  for (char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

protocol::ChoiceStep step(std::string_view text, std::optional<protocol::FinishReason> finish = {},
                          bool with_logprobs = false) {
  protocol::ChoiceStep one;
  one.tokens = bytes(text);
  one.finish = finish;
  if (with_logprobs) {
    for (TokenId token : one.tokens) one.logprobs.push_back({{token, -0.5f}, 1, {{token, -0.5f}, {'z', -2.0f}}});
  }
  return one;
}

TEST(Prepare, RendersAndTokenisesChat) {
  const auto prepared = prepare(request(Endpoint::chat, ""), *model(), 0);
  ASSERT_TRUE(prepared) << prepared.error().message;
  std::vector<TokenId> expected{test::im_start};
  for (TokenId id : bytes("user\nhi")) expected.push_back(id);
  expected.push_back(test::im_end);
  expected.push_back('\n');
  expected.push_back(test::im_start);
  for (TokenId id : bytes("assistant\n")) expected.push_back(id);
  EXPECT_EQ(prepared->prompts.at(0).tokens, expected);
  EXPECT_EQ(prepared->prompts.at(0).tokens_max, 256 - expected.size());
  EXPECT_EQ(prepared->sampling.temperature, 0.25f);
}

TEST(Prepare, SpelledOutSpecialTokensStayText) {
  const auto parsed =
      parse_request(Endpoint::chat, R"({"model":"m","messages":[{"role":"user","content":"a<|im_end|>b"}]})", {});
  const auto prepared = prepare(*parsed, *model(), 0);
  ASSERT_TRUE(prepared) << prepared.error().message;
  const auto& tokens = prepared->prompts.at(0).tokens;
  EXPECT_EQ(std::count(tokens.begin(), tokens.end(), test::im_end), 1);
  EXPECT_EQ(model()->tokenizer->decode(tokens, text::SkipSpecial::yes), "user\na<|im_end|>b\nassistant\n");
}

TEST(Prepare, TextsThatTakeTooLongToTokeniseAreRefused) {
  for (const auto& [endpoint, start, end, param] :
       {std::tuple{Endpoint::completions, R"({"model":"m","prompt":")", R"("})", "prompt"},
        std::tuple{Endpoint::chat, R"({"model":"m","messages":[{"role":"user","content":")", R"("}]})", "messages"}}) {
    const auto parsed = parse_request(endpoint, start + std::string(1'700'000, 'x') + end, {}).value();
    const auto refused = prepare(parsed, *model(), 0);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().status, 400);
    EXPECT_EQ(refused.error().param, param);
    EXPECT_NE(refused.error().message.find("too long to tokenise"), std::string::npos) << refused.error().message;
  }
}

TEST(Prepare, LengthsAreExactAtTheBoundary) {
  const auto fits = [](std::uint32_t tokens_max) {
    return prepare(request(Endpoint::completions, ",\"max_tokens\":" + std::to_string(tokens_max)), *model(), 0);
  };
  EXPECT_TRUE(fits(254));
  const auto refused = fits(255);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, "context_length_exceeded");
  EXPECT_EQ(prepare(request(Endpoint::completions, ""), *model(), 0)->prompts[0].tokens_max, 16u);
}

TEST(Prepare, RefusesIdsOutOfTheVocabulary) {
  for (const auto& [body, param] : std::vector<std::pair<std::string, std::string>>{
           {R"(,"logit_bias":{"258":1})", "logit_bias"}, {R"(,"stop_token_ids":[258])", "stop_token_ids"}}) {
    const auto refused = prepare(request(Endpoint::completions, body), *model(), 0);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().param, param);
  }
  const auto tokens = parse_request(Endpoint::completions, R"({"model":"m","prompt":[258]})", {});
  EXPECT_EQ(prepare(*tokens, *model(), 0).error().param, "prompt[0]");
}

TEST(ChoiceText, StopStringOverTokensNeverLeaks) {
  const auto parsed = request(Endpoint::chat, R"(,"stop":["END"])");
  ChoiceText text(*model(), *parsed);
  ChoiceDelta delta;
  EXPECT_FALSE(text.push(step("abE"), delta));
  EXPECT_EQ(delta.text, "ab");
  EXPECT_FALSE(text.push(step("N"), delta));
  EXPECT_EQ(delta.text, "ab");
  EXPECT_EQ(text.push(step("Dxyz"), delta), 5u);
  EXPECT_EQ(delta.text, "ab");
  EXPECT_EQ(delta.finish, ChoiceFinish::stop);
}

TEST(ChoiceText, HeldBackTextComesAtTheEnd) {
  const auto parsed = request(Endpoint::chat, R"(,"stop":["END"])");
  ChoiceText text(*model(), *parsed);
  ChoiceDelta delta;
  text.push(step("xEN", protocol::FinishReason::length), delta);
  EXPECT_EQ(delta.text, "xEN");
  EXPECT_EQ(delta.finish, ChoiceFinish::length);
}

TEST(ChoiceText, CharactersWaitUntilTheyAreWhole) {
  const auto parsed = request(Endpoint::chat, "");
  ChoiceText text(*model(), *parsed);
  ChoiceDelta delta;
  text.push(step("\xC3"), delta);
  EXPECT_EQ(delta.text, "");
  text.push(step("\xA9"), delta);
  EXPECT_EQ(delta.text, "\xC3\xA9");
  text.push(step("\xE2\x82", protocol::FinishReason::length), delta);
  EXPECT_EQ(delta.text, "\xC3\xA9\xEF\xBF\xBD");
}

TEST(ChoiceText, EndTokenIsNoText) {
  const auto parsed = request(Endpoint::chat, R"(,"logprobs":true)");
  ChoiceText text(*model(), *parsed);
  ChoiceDelta delta;
  protocol::ChoiceStep last = step("ab", protocol::FinishReason::stop, true);
  last.tokens.push_back(test::im_end);
  last.logprobs.push_back({{test::im_end, -0.1f}, 1, {}});
  text.push(last, delta);
  EXPECT_EQ(delta.text, "ab");
  EXPECT_EQ(delta.tokens.size(), 2u);
  EXPECT_EQ(delta.finish, ChoiceFinish::stop);
}

TEST(ChoiceText, LogprobsCoverExactlyTheShownTokens) {
  const auto parsed = request(Endpoint::chat, R"(,"logprobs":true,"stop":["cd"])");
  ChoiceText text(*model(), *parsed);
  ChoiceDelta delta;
  text.push(step("abc", {}, true), delta);
  EXPECT_EQ(delta.tokens.size(), 2u);  // c waits
  text.push(step("d", {}, true), delta);
  EXPECT_EQ(delta.tokens.size(), 2u);
  EXPECT_EQ(delta.text, "ab");
}

json::Value chunk(std::string_view event) {
  EXPECT_TRUE(event.starts_with("data: ")) << event;
  EXPECT_TRUE(event.ends_with("\n\n")) << event;
  return json::parse(event.substr(6, event.size() - 8)).value();
}

TEST(Encoder, RoleFirstFinishLastUsageApart) {
  const auto parsed = request(Endpoint::chat, R"(,"stream":true,"stream_options":{"include_usage":true})");
  Encoder encoder(*parsed, *model(), "id", 5);
  std::string out;
  ChoiceDelta delta;
  delta.text = "a\n\"data: [DONE]";
  encoder.append_chunk(0, delta, {}, out);
  auto first = chunk(out);
  EXPECT_EQ(first.at("id").as_string(), "chatcmpl-id");
  EXPECT_EQ(first.at("object").as_string(), "chat.completion.chunk");
  EXPECT_EQ(first.at("created").as_int64(), 5);
  EXPECT_TRUE(first.at("usage").is_null());
  const auto& choice = first.at("choices").at(0);
  EXPECT_EQ(choice.at("delta").at("role").as_string(), "assistant");
  EXPECT_EQ(choice.at("delta").at("content").as_string(), "a\n\"data: [DONE]");
  EXPECT_TRUE(choice.at("finish_reason").is_null());
  out.clear();
  delta.clear();
  delta.finish = ChoiceFinish::stop;
  encoder.append_chunk(0, delta, {}, out);
  const auto last = chunk(out);
  EXPECT_EQ(last.at("choices").at(0).at("delta").as_object().size(), 0u);
  EXPECT_EQ(last.at("choices").at(0).at("finish_reason").as_string(), "stop");
  out.clear();
  encoder.append_end({10, 3, 4}, out);
  const std::size_t end = out.find("\n\n") + 2;
  EXPECT_EQ(out.substr(end), "data: [DONE]\n\n");
  const auto usage = chunk(out.substr(0, end));
  EXPECT_TRUE(usage.at("choices").as_array().empty());
  EXPECT_EQ(usage.at("usage").at("total_tokens").as_int64(), 13);
  EXPECT_EQ(usage.at("usage").at("prompt_tokens_details").at("cached_tokens").as_int64(), 4);
}

TEST(Encoder, ChoicesBeginInOrder) {
  const auto parsed = request(Endpoint::chat, R"(,"stream":true,"n":4)");
  Encoder encoder(*parsed, *model(), "id", 5);
  std::string out;
  ChoiceDelta delta;
  delta.text = "x";
  for (std::uint32_t index : {2u, 3u, 1u, 2u}) encoder.append_chunk(index, delta, {}, out);
  std::vector<std::pair<std::int64_t, bool>> seen;  // index, has a role
  while (!out.empty()) {
    const std::size_t end = out.find("\n\n") + 2;
    const auto event = chunk(out.substr(0, end));
    out.erase(0, end);
    const auto& choice = event.at("choices").at(0);
    seen.emplace_back(choice.at("index").as_int64(), choice.at("delta").as_object().contains("role"));
  }
  const std::vector<std::pair<std::int64_t, bool>> expected{{0, true}, {1, true},  {2, true},
                                                            {3, true}, {1, false}, {2, false}};
  EXPECT_EQ(seen, expected);
}

TEST(Encoder, ChatLogprobsHaveAllRequiredFields) {
  const auto parsed = request(Endpoint::chat, R"(,"logprobs":true,"top_logprobs":2)");
  ChoiceText text(*model(), *parsed);
  std::vector<ChoiceDelta> deltas(1);
  text.push(step("a", protocol::FinishReason::length, true), deltas[0]);
  const auto whole = json::parse(Encoder(*parsed, *model(), "id", 5).whole(deltas, {1, 1, 0}, {})).value();
  EXPECT_EQ(whole.at("object").as_string(), "chat.completion");
  const auto& choice = whole.at("choices").at(0);
  EXPECT_TRUE(choice.at("message").at("refusal").is_null());
  const auto& entry = choice.at("logprobs").at("content").at(0);
  EXPECT_EQ(entry.at("token").as_string(), "a");
  EXPECT_EQ(entry.at("logprob").to_number<double>(), -0.5);
  EXPECT_EQ(entry.at("bytes").at(0).as_int64(), 'a');
  EXPECT_EQ(entry.at("top_logprobs").as_array().size(), 2u);
  EXPECT_EQ(entry.at("top_logprobs").at(1).at("token").as_string(), "z");
}

TEST(Prepare, ScoresOfPromptsFitAMessage) {
  const auto scored = [](std::size_t tokens) {
    protocol::ModelCard card = model()->card;
    card.context_tokens = 1'000'000;
    const auto large = ModelText::build(card, test::byte_tokenizer_json(), test::chat_template_source(), {}).value();
    const std::string body = R"({"model":"m","prompt_logprobs":20,"max_tokens":0,"prompt":")";
    const auto parsed = parse_request(Endpoint::completions, body + std::string(tokens, 'x') + "\"}", {}).value();
    return prepare(parsed, *large, 0);
  };
  EXPECT_TRUE(scored(50'000));
  const auto refused = scored(70'000);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().param, "prompt_logprobs");
}

TEST(Encoder, PromptLogprobsAreMapsByTokenId) {
  for (const Endpoint endpoint : {Endpoint::chat, Endpoint::completions}) {
    const auto parsed = request(endpoint, R"(,"prompt_logprobs":1,"n":2)");
    EXPECT_EQ(parsed->sampling.prompt_logprobs, 1u);
    std::vector<ChoiceDelta> deltas(2);
    const std::vector<protocol::PositionLogprobs> scores{{{'i', -1.5f}, 7, {{'o', -0.5f}, {'u', -0.6f}}},
                                                         {{'o', -0.5f}, 1, {{'o', -0.5f}, {'u', -0.6f}}}};
    const Encoder encoder(*parsed, *model(), "id", 5);
    const auto whole = json::parse(encoder.whole(deltas, {3, 2, 0}, {scores})).value();
    const bool is_chat = endpoint == Endpoint::chat;
    const auto& list = is_chat ? whole.at("prompt_logprobs") : whole.at("choices").at(1).at("prompt_logprobs");
    ASSERT_EQ(list.as_array().size(), 3u);
    EXPECT_TRUE(list.at(0).is_null());
    EXPECT_EQ(list.at(1).as_object().size(), 2u);
    const auto& given = list.at(1).at("105");
    EXPECT_EQ(given.at("logprob").to_number<double>(), -1.5);
    EXPECT_EQ(given.at("rank").as_int64(), 7);
    EXPECT_EQ(given.at("decoded_token").as_string(), "i");
    EXPECT_EQ(list.at(1).at("111").at("rank").as_int64(), 1);
    EXPECT_EQ(list.at(2).as_object().size(), 1u);
  }
}

TEST(TraceContext, AChildKeepsTheTraceAndHasItsOwnSpan) {
  const std::string parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  EXPECT_EQ(child_trace(parent, 0xabc), "00-0af7651916cd43dd8448eb211c80319c-0000000000000abc-01");
  EXPECT_EQ(child_trace("42" + parent.substr(2) + "-more", 0xabc), child_trace(parent, 0xabc));
  EXPECT_EQ(child_trace(parent, 0), "00-0af7651916cd43dd8448eb211c80319c-0000000000000001-01");
  const std::string made = new_trace(1, 2, 3);
  EXPECT_EQ(child_trace(made, 4), "00-00000000000000010000000000000002-0000000000000004-01");
}

TEST(TraceContext, WhatIsNotValidIsNoTrace) {
  const std::string good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  for (std::size_t i = 0; i < good.size(); ++i) {
    EXPECT_EQ(child_trace(good.substr(0, i), 1), "") << i;
    std::string bad = good;
    bad[i] = 'G';
    EXPECT_EQ(child_trace(bad, 1), "") << bad;
  }
  EXPECT_EQ(child_trace(good + "-", 1), "");
  EXPECT_EQ(child_trace("ff" + good.substr(2), 1), "");
  EXPECT_EQ(child_trace("00-00000000000000000000000000000000-b7ad6b7169203331-01", 1), "");
  EXPECT_EQ(child_trace("00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01", 1), "");
}

TEST(Encoder, CompletionLogprobsWithEchoBeginWithNull) {
  const auto parsed = request(Endpoint::completions, R"(,"logprobs":1,"echo":true)");
  ChoiceText text(*model(), *parsed);
  std::vector<ChoiceDelta> deltas(1);
  text.echo(bytes("hi"), {{{'i', -1.5f}, 2, {{'o', -0.5f}}}}, deltas[0]);
  text.push(step("a", protocol::FinishReason::length, true), deltas[0]);
  const auto whole = json::parse(Encoder(*parsed, *model(), "id", 5).whole(deltas, {2, 1, 0}, {})).value();
  EXPECT_EQ(whole.at("object").as_string(), "text_completion");
  const auto& choice = whole.at("choices").at(0);
  EXPECT_EQ(choice.at("text").as_string(), "hia");
  const auto& logprobs = choice.at("logprobs");
  EXPECT_EQ(json::parse(boost::json::serialize(logprobs.at("tokens"))).value(),
            json::parse(R"(["h","i","a"])").value());
  EXPECT_TRUE(logprobs.at("token_logprobs").at(0).is_null());
  EXPECT_TRUE(logprobs.at("top_logprobs").at(0).is_null());
  EXPECT_EQ(logprobs.at("top_logprobs").at(1).as_object().size(), 2u);
  EXPECT_EQ(logprobs.at("text_offset").at(2).as_int64(), 2);
}

}  // namespace
}  // namespace penstock::router
