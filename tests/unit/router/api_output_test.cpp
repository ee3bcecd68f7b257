// Calls and thoughts between request and answer: what goes into the prompt, and what clients are sent.
#include <gtest/gtest.h>

#include "common/json/json.hpp"
#include "router/core/api/encoder.hpp"
#include "router/core/api/prepare.hpp"
#include "tests/support/byte_tokenizer.hpp"

namespace penstock::router {
namespace {

// Shows its markers as the templates of models do.
constexpr std::string_view hermes_template =
    "{% for m in messages %}{{ m.role }}:{{ m.content }}"
    "{% for c in m.tool_calls %}<tool_call>{{ c.function.name }} {{ c.function.arguments.city }}</tool_call>{% endfor "
    "%}{{ '\n' }}{% endfor %}{% if add_generation_prompt %}assistant:{{ generation }}{% endif %}";
constexpr std::string_view thinking_template =
    "{% for m in messages %}{{ m.content }}</think><tool_call>{% endfor %}assistant:<think>\n";

std::shared_ptr<const ModelText> model(std::string_view source, const FormatChoice& formats = {}) {
  protocol::ModelCard card;
  card.name = "m";
  card.context_tokens = 4096;
  card.vocabulary_size = test::byte_vocabulary_size + 1;
  card.eos_tokens = {test::im_end};
  return ModelText::build(card, test::byte_tokenizer_json({"[TOOL_CALLS]"}), source, {}, formats).value();
}

const std::string two_tools =
    R"(,"tools":[{"type":"function","function":{"name":"weather","parameters":{"type":"object"}}},
        {"type":"function","function":{"name":"time"}}])";
const std::string one_tool = R"(,"tools":[{"type":"function","function":{"name":"time"}}])";

std::string body(const std::string& more) {
  return R"({"model":"m","messages":[{"role":"user","content":"hi"}])" + more + "}";
}

ApiResult<PreparedRequest> prepared(const ModelText& text, const std::string& more) {
  const auto parsed = parse_request(Endpoint::chat, body(more), {});
  if (!parsed) return parsed.error();
  return prepare(*parsed, text, 0);
}

std::string prompt(const ModelText& text, const std::string& more) {
  const auto made = prepared(text, more);
  EXPECT_TRUE(made) << made.error().message;
  return made ? text.tokenizer->decode(made->prompts.at(0).tokens, text::SkipSpecial::no) : "";
}

protocol::ChoiceStep step(std::string_view text, std::optional<protocol::FinishReason> finish = {}) {
  protocol::ChoiceStep one;
  for (char c : text) one.tokens.push_back(static_cast<unsigned char>(c));
  one.finish = finish;
  return one;
}

struct Answer {
  Answer(std::string_view source, const std::string& more)
      : text(model(source)),
        request(parse_request(Endpoint::chat, body(more), {}).value()),
        made(prepare(request, *text, 0).value()),
        choice(*text, *request, made.prompts.at(0).output),
        encoder(*request, *text, "1", 7) {}

  /// What is new in the stream, without what all chunks have.
  std::string push(const protocol::ChoiceStep& one) {
    ChoiceDelta delta;
    kept = choice.push(one, delta);
    std::string out;
    encoder.append_chunk(0, delta, {}, out);
    const std::string before =
        R"(data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":7,"model":"m","choices":[{"index":0,"delta":)";
    std::string shown;
    for (std::size_t at = 0; at < out.size();) {
      const std::size_t end = out.find("\n\n", at);
      std::string line = out.substr(at, end - at);
      EXPECT_TRUE(line.starts_with(before)) << line;
      line = line.substr(std::min(before.size(), line.size()));
      shown += line.substr(0, line.find(",\"logprobs\"")) + "|";
      if (line.find("finish_reason\":null") == std::string::npos) {
        shown += line.substr(line.find("finish_reason") + 15, line.size() - line.find("finish_reason") - 18);
      }
      at = end + 2;
    }
    return shown;
  }

  std::shared_ptr<const ModelText> text;
  ValidatedRequest request;
  PreparedRequest made;
  ChoiceText choice;
  Encoder encoder;
  std::optional<std::uint32_t> kept;
};

TEST(Output, CallsAreStreamedAsClientsExpect) {
  Answer answer(hermes_template, two_tools);
  EXPECT_EQ(answer.push(step("I look.")), R"({"role":"assistant","content":"I look."}|)");
  const std::string first = answer.push(step("\n<tool_call>{\"name\": \"weather\", \"arguments\": {"));
  const std::string id = first.substr(first.find("call_"), 29);
  EXPECT_EQ(first, R"({"tool_calls":[{"index":0,"id":")" + id +
                       R"(","type":"function","function":{"name":"weather","arguments":""}}]}|)"
                       R"({"tool_calls":[{"index":0,"function":{"arguments":"{"}}]}|)");
  EXPECT_EQ(answer.push(step("\"a\": 1}")), R"({"tool_calls":[{"index":0,"function":{"arguments":"\"a\": 1}"}}]}|)");
  EXPECT_EQ(answer.push(step("}</tool_call>", protocol::FinishReason::stop)), R"({}|"tool_calls")");
}

TEST(Output, AnAnswerThatIsACallHasNoContent) {
  Answer answer(hermes_template, one_tool);
  const std::string first =
      answer.push(step("<tool_call>{\"name\": \"time\", \"arguments\": {}}", protocol::FinishReason::stop));
  EXPECT_TRUE(first.starts_with(R"({"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"call_)")) << first;
  EXPECT_TRUE(first.ends_with("\"tool_calls\"")) << first;
}

TEST(Output, TextChunksNeverNameCalls) {
  Answer answer(hermes_template, one_tool);
  EXPECT_EQ(answer.push(step("Hi")), R"({"role":"assistant","content":"Hi"}|)");
  EXPECT_EQ(answer.push(step(" you", protocol::FinishReason::stop)), R"({"content":" you"}|"stop")");
}

TEST(Output, ACutCallSaysLength) {
  Answer answer(hermes_template, one_tool);
  const std::string all =
      answer.push(step("<tool_call>{\"name\": \"time\", \"arguments\": {\"a", protocol::FinishReason::length));
  EXPECT_TRUE(all.ends_with(R"("arguments":"{\"a"}}]}|"length")")) << all;
}

TEST(Output, WithoutParallelCallsTheFirstOneEndsTheAnswer) {
  Answer answer(hermes_template, one_tool + R"(,"parallel_tool_calls":false)");
  const std::string call = "<tool_call>{\"name\": \"time\", \"arguments\": {}}";
  const std::string all = answer.push(step(call + "</tool_call>" + call));
  EXPECT_TRUE(all.ends_with("\"tool_calls\"")) << all;
  EXPECT_EQ(all.find("\"index\":1"), std::string::npos);
  EXPECT_EQ(answer.kept, call.size()) << "the worker is told where";
  EXPECT_TRUE(answer.choice.is_finished());
}

TEST(Output, WholeAnswers) {
  Answer answer(hermes_template, one_tool);
  std::vector<ChoiceDelta> deltas(1);
  for (const char* piece : {"Hm.\n<tool_call>{\"name\": \"time\", ", "\"arguments\": {\"a\"", ": 1}}</tool_call>"}) {
    answer.choice.push(step(piece), deltas[0]);
  }
  answer.choice.push(step("", protocol::FinishReason::stop), deltas[0]);
  const auto whole = json::parse(answer.encoder.whole(deltas, {}, {}));
  const auto& choice = whole->at("choices").at(0);
  EXPECT_EQ(choice.at("finish_reason").as_string(), "tool_calls");
  const auto& message = choice.at("message");
  EXPECT_EQ(message.at("content").as_string(), "Hm.");
  EXPECT_TRUE(message.at("refusal").is_null());
  ASSERT_EQ(message.at("tool_calls").as_array().size(), 1u);
  const auto& call = message.at("tool_calls").at(0);
  EXPECT_EQ(call.at("type").as_string(), "function");
  EXPECT_EQ(call.at("function").at("name").as_string(), "time");
  EXPECT_EQ(call.at("function").at("arguments").as_string(), "{\"a\": 1}");
  EXPECT_FALSE(call.as_object().contains("index"));
}

TEST(Output, ThoughtsThatTheTemplateOpensAreSplitOff) {
  Answer answer(thinking_template, "");
  EXPECT_EQ(answer.push(step("Hm.")), R"({"role":"assistant","content":null,"reasoning_content":"Hm."}|)");
  EXPECT_EQ(answer.push(step(" So.\n</think>\n\nHi", protocol::FinishReason::stop)),
            R"({"reasoning_content":" So."}|{"content":"Hi"}|"stop")");
}

TEST(Output, ThoughtsWithoutAnAnswerHaveNoContent) {
  Answer answer(thinking_template, "");
  std::vector<ChoiceDelta> deltas(1);
  answer.choice.push(step("Hm", protocol::FinishReason::length), deltas[0]);
  const auto message = json::parse(answer.encoder.whole(deltas, {}, {}))->at("choices").at(0).at("message");
  EXPECT_TRUE(message.at("content").is_null());
  EXPECT_EQ(message.at("reasoning_content").as_string(), "Hm");
  EXPECT_FALSE(message.as_object().contains("tool_calls"));
}

TEST(Output, WithoutToolsOrWithNoneAllowedMarkersAreText) {
  for (const std::string& more : {std::string(), one_tool + R"(,"tool_choice":"none")"}) {
    Answer answer(hermes_template, more);
    EXPECT_EQ(answer.push(step("<tool_call>{}", protocol::FinishReason::stop)),
              R"({"role":"assistant","content":"<tool_call>{}"}|"stop")");
  }
}

TEST(Output, MarkersThatAreSpecialTokensReachTheParser) {
  const auto text = model("[TOOL_CALLS]");
  const auto request = parse_request(Endpoint::chat, body(one_tool), {}).value();
  OutputOptions output;
  output.tools = ToolFormat::mistral;
  output.tool_set = std::get<ChatPrompt>(request->prompts.at(0)).tools.set;
  ChoiceText choice(*text, *request, output);
  ChoiceDelta delta;
  protocol::ChoiceStep first = step("");
  first.tokens = {test::im_start, test::byte_vocabulary_size};
  choice.push(first, delta);
  choice.push(step("time{}", protocol::FinishReason::stop), delta);
  ASSERT_EQ(delta.output.size(), 2u);
  EXPECT_EQ(delta.output[0].text, "time") << "other special tokens stay hidden";
  EXPECT_EQ(delta.finish, ChoiceFinish::tool_calls);

  ChoiceText plain(*text, *request);
  ChoiceDelta hidden;
  plain.push(first, hidden);
  EXPECT_EQ(hidden.text, "");
}

TEST(Output, AForcedCallIsOpenedByThePrompt) {
  const auto text = model(hermes_template);
  const std::string named = two_tools + R"(,"tool_choice":{"type":"function","function":{"name":"time"}})";
  EXPECT_TRUE(prompt(*text, named).ends_with("assistant:<tool_call>\n{\"name\": \"time\", \"arguments\": {"));
  EXPECT_TRUE(
      prompt(*text, two_tools + R"(,"tool_choice":"required")").ends_with("assistant:<tool_call>\n{\"name\": \""));
  EXPECT_TRUE(prompt(*text, one_tool + R"(,"tool_choice":"required")").ends_with("\"time\", \"arguments\": {"));
  EXPECT_TRUE(prompt(*model(thinking_template), named)
                  .ends_with("assistant:<think>\n</think>\n\n<tool_call>\n{\"name\": \"time\", \"arguments\": {"));
  const auto mistral = model("[TOOL_CALLS]");
  const auto tokens = prepared(*mistral, named)->prompts.at(0).tokens;
  EXPECT_EQ(std::count(tokens.begin(), tokens.end(), test::byte_vocabulary_size), 2) << "the marker is its token";

  Answer answer(hermes_template, named);
  const std::string all = answer.push(step("\"a\": 1}}</tool_call> and more"));
  EXPECT_NE(all.find("\"name\":\"time\",\"arguments\":\"\""), std::string::npos) << all;
  EXPECT_TRUE(all.ends_with("\"tool_calls\"")) << all;
}

TEST(Output, WhatCannotBeForcedIsRefusedByName) {
  const auto none = model("{{ messages[0].content }}");
  const std::string named = R"(,"tool_choice":{"type":"function","function":{"name":"time"}})";
  const std::string odd = R"(,"tools":[{"type":"function","function":{"name":"a\"b"}}],"tool_choice":"required")";
  const auto hermes = model(hermes_template);
  struct Row {
    const ModelText& text;
    std::string more;
  };
  for (const auto& row :
       {Row{*none, two_tools + named}, Row{*none, two_tools + R"(,"tool_choice":"required")"}, Row{*hermes, odd},
        Row{*hermes, named}, Row{*hermes, R"(,"tool_choice":"required")"},
        Row{*hermes, two_tools + R"(,"tool_choice":"some")"}, Row{*hermes, two_tools + R"(,"tool_choice":5)"},
        Row{*hermes, two_tools + R"(,"tool_choice":{"type":"allowed_tools"})"},
        Row{*hermes, two_tools + R"(,"tool_choice":{"type":"function","function":{"name":"x"}})"}}) {
    const auto refused = prepared(row.text, row.more);
    ASSERT_FALSE(refused) << row.more;
    EXPECT_EQ(refused.error().status, 400);
    EXPECT_EQ(refused.error().param, "tool_choice") << row.more;
  }
  EXPECT_TRUE(prepared(*none, two_tools));
  EXPECT_EQ(prepared(*hermes, one_tool + R"(,"parallel_tool_calls":1)").error().param, "parallel_tool_calls");
}

TEST(Output, ArgumentsOfEarlierCallsAreObjectsForTheTemplate) {
  const auto text = model(hermes_template);
  const auto parsed = parse_request(Endpoint::chat, R"({"model":"m","messages":[{"role":"user","content":"hi"},
      {"role":"assistant","content":null,"tool_calls":[{"id":"call_1","type":"function","function":{"name":"weather",
        "arguments":"{\"city\": \"Bonn\"}"}}]},{"role":"tool","tool_call_id":"call_1","content":"rain"}]})",
                                    {});
  ASSERT_TRUE(parsed) << parsed.error().message;
  const auto made = prepare(*parsed, *text, 0);
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(text->tokenizer->decode(made->prompts[0].tokens, text::SkipSpecial::no),
            "user:hi\nassistant:<tool_call>weather Bonn</tool_call>\ntool:rain\nassistant:");
}

TEST(Output, SettingsChooseFormatsByModel) {
  FormatChoices choices;
  ASSERT_TRUE(choices.add_tools("hermes"));
  ASSERT_TRUE(choices.add_tools("org/m=none"));
  ASSERT_TRUE(choices.add_reasoning("m=think"));
  EXPECT_EQ(choices.of("x").tools, ToolFormat::hermes);
  EXPECT_EQ(choices.of("org/m").tools, ToolFormat::none);
  EXPECT_EQ(choices.of("m").reasoning, ReasoningFormat::think);
  EXPECT_FALSE(choices.of("x").reasoning);
  const auto unknown = choices.add_tools("m=hermes2");
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().message,
            "'hermes2' is no format of calls; there are none, hermes, llama3_json, mistral, qwen3_coder");
  EXPECT_FALSE(choices.add_reasoning("deep"));
}

}  // namespace
}  // namespace penstock::router
