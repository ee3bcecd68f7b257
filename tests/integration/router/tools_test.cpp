// Calls of tools and thoughts over real sockets, in the shapes of both APIs: what official clients insist on, and that
// a worker's death in the middle of a call changes nothing.
#include "tests/integration/router/cluster.hpp"
#include "tests/integration/router/keys.hpp"

namespace penstock::test {
namespace {

constexpr std::string_view source =
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}<tool_call></think>{% if add_generation_prompt "
    "%}"
    "assistant:{% endif %}";

FakeWorkerOptions saying(const std::string& text) {
  FakeWorkerOptions options;
  options.text = text;
  options.ends_at = static_cast<std::uint32_t>(text.size());
  options.choice_shift = 0;
  options.chat_template = source;
  return options;
}

const std::string thought_and_calls =
    "<think>\nHm.\n</think>\n\nI ask.\n<tool_call>\n{\"name\": \"time\", \"arguments\": {\"zone\": "
    "\"CET\"}}\n</tool_call>\n"
    "<tool_call>\n{\"name\": \"time\", \"arguments\": {}}\n</tool_call>";
const std::string tools = R"(,"tools":[{"type":"function","function":{"name":"time"}}])";

struct Call {
  std::string id, name, arguments;
};
/// A choice put together as the official clients do it, which are strict.
struct Choice {
  std::string role, content, reasoning, finish;
  std::vector<Call> calls;
  std::int64_t finishes = 0;
};

void add_call(const json::Value& piece, Choice& choice) {
  const auto index = static_cast<std::size_t>(piece.at("index").as_int64());
  const auto& object = piece.as_object();
  ASSERT_LE(index, choice.calls.size()) << "indices have no gaps";
  if (index == choice.calls.size()) {
    EXPECT_EQ(piece.at("type").as_string(), "function");
    choice.calls.push_back(
        {std::string(piece.at("id").as_string()), std::string(piece.at("function").at("name").as_string()), ""});
  } else {
    EXPECT_FALSE(object.contains("id"));
  }
  choice.calls[index].arguments += piece.at("function").at("arguments").as_string();
}

std::vector<Choice> put_together(const std::vector<std::string>& events, std::size_t count) {
  std::vector<Choice> choices(count);
  EXPECT_EQ(events.back(), "[DONE]");
  for (const auto& event : events) {
    if (event == "[DONE]") continue;
    const auto value = parsed(event);
    for (const auto& one : value.at("choices").as_array()) {
      Choice& choice = choices.at(static_cast<std::size_t>(one.at("index").as_int64()));
      const auto& delta = one.at("delta").as_object();
      if (const auto* role = delta.if_contains("role")) choice.role += role->as_string();
      if (const auto* text = delta.if_contains("content"); text != nullptr && text->is_string())
        choice.content += text->as_string();
      if (const auto* text = delta.if_contains("reasoning_content")) choice.reasoning += text->as_string();
      if (const auto* calls = delta.if_contains("tool_calls")) {
        EXPECT_EQ(calls->as_array().size(), 1u);
        for (const auto& piece : calls->as_array()) add_call(piece, choice);
      }
      if (one.at("finish_reason").is_null()) continue;
      ++choice.finishes;
      choice.finish = one.at("finish_reason").as_string();
    }
  }
  return choices;
}

void expect_thought_and_calls(const Choice& choice) {
  EXPECT_EQ(choice.role, "assistant");
  EXPECT_EQ(choice.reasoning, "Hm.");
  EXPECT_EQ(choice.content, "I ask.");
  ASSERT_EQ(choice.calls.size(), 2u);
  EXPECT_EQ(choice.calls[0].name, "time");
  EXPECT_EQ(choice.calls[0].arguments, "{\"zone\": \"CET\"}");
  EXPECT_EQ(choice.calls[1].arguments, "{}");
  EXPECT_NE(choice.calls[0].id, choice.calls[1].id);
  EXPECT_EQ(choice.finish, "tool_calls");
  EXPECT_EQ(choice.finishes, 1);
}

TEST(Tools, CallsAreStreamedForEachChoice) {
  Cluster cluster({saying(thought_and_calls)});
  const auto events = cluster.stream("/v1/chat/completions", chat_body(tools + R"(,"stream":true,"n":2)"));
  const auto choices = put_together(events, 2);
  for (const auto& choice : choices) expect_thought_and_calls(choice);
  EXPECT_NE(choices[0].calls.at(0).id, choices[1].calls.at(0).id);
}

TEST(Tools, WholeAnswersAndUsageCountEveryToken) {
  Cluster cluster({saying(thought_and_calls)});
  const auto answer = cluster.post("/v1/chat/completions", chat_body(tools));
  ASSERT_EQ(answer->status, 200) << answer->body;
  const auto whole = parsed(answer->body);
  const auto& message = whole.at("choices").at(0).at("message");
  EXPECT_EQ(message.at("content").as_string(), "I ask.");
  EXPECT_EQ(message.at("reasoning_content").as_string(), "Hm.");
  EXPECT_EQ(message.at("tool_calls").as_array().size(), 2u);
  EXPECT_EQ(whole.at("choices").at(0).at("finish_reason").as_string(), "tool_calls");
  EXPECT_EQ(whole.at("usage").at("completion_tokens").as_int64(),
            static_cast<std::int64_t>(thought_and_calls.size() + 1));
}

TEST(Tools, AWorkerThatDiesWithinACallChangesNothing) {
  for (const std::string_view within : {"ink>\nHm", "_call>\n{", "me\", \"arg", "CET"}) {
    FakeWorkerOptions dying = saying(thought_and_calls);
    dying.faults.dies_before = static_cast<std::uint32_t>(thought_and_calls.find(within)) + 2;
    router::RouterConfig config;
    config.policy = router::PolicyKind::round_robin;
    Cluster cluster({dying, saying(thought_and_calls)}, config);
    for (int i = 0; i < 2; ++i) {
      const auto events = cluster.stream("/v1/chat/completions", chat_body(tools + R"(,"stream":true)"));
      expect_thought_and_calls(put_together(events, 1)[0]);
    }
    EXPECT_EQ(cluster.workers[0]->generates().size(), 1u) << "it was asked, and died";
    EXPECT_EQ(cluster.workers[1]->generates().size(), 2u);
  }
}

TEST(Tools, WithoutParallelCallsTheWorkerIsStopped) {
  Cluster cluster({saying(thought_and_calls)});
  const auto answer = cluster.post("/v1/chat/completions", chat_body(tools + R"(,"parallel_tool_calls":false)"));
  const auto whole = parsed(answer->body);
  EXPECT_EQ(whole.at("choices").at(0).at("message").at("tool_calls").as_array().size(), 1u);
  EXPECT_EQ(whole.at("choices").at(0).at("finish_reason").as_string(), "tool_calls");
  EXPECT_EQ(whole.at("usage").at("completion_tokens").as_int64(),
            static_cast<std::int64_t>(thought_and_calls.find("}}") + 2));
}

TEST(Tools, SettingsTurnTheParsersOff) {
  router::RouterConfig config;
  config.tool_format = {"hermes", "fake=none"};
  config.reasoning_format = {"none"};
  Cluster cluster({saying(thought_and_calls)}, config);
  const auto answer = parsed(cluster.post("/v1/chat/completions", chat_body(tools))->body);
  EXPECT_EQ(answer.at("choices").at(0).at("message").at("content").as_string(), thought_and_calls);
  const auto refused = cluster.post("/v1/chat/completions", chat_body(tools + R"(,"tool_choice":"required")"));
  EXPECT_EQ(refused->status, 400);
  EXPECT_EQ(parsed(refused->body).at("error").at("param").as_string(), "tool_choice");
}

TEST(Tools, LoadAndProbesNeedNoKey) {
  const Folder folder;
  router::RouterConfig config;
  config.api_keys_file = folder.write("keys", key_line("good", "team"));
  Cluster cluster({FakeWorkerOptions{}}, config);
  const auto load = cluster.get("/load");
  EXPECT_EQ(load->status, 200);
  EXPECT_EQ(parsed(load->body).at("server_load").as_int64(), 0);
  for (const char* path : {"/health", "/live", "/ping"}) {
    const auto answer = cluster.get(path);
    EXPECT_EQ(answer->status, 200) << path;
    EXPECT_EQ(answer->body, "") << path;
  }
  EXPECT_EQ(cluster.post("/load", "{}", bearer("good"))->status, 405);
}

}  // namespace
}  // namespace penstock::test
