// Anthropic's Messages API over real sockets: the order of events, whole answers, errors in its shape, its keys.
#include "tests/integration/router/cluster.hpp"
#include "tests/integration/router/keys.hpp"

namespace penstock::test {
namespace {

constexpr std::string_view source =
    "{% for m in messages %}{{ m.role }}: {{ m.content }}"
    "{% for c in m.tool_calls %}<tool_call>{{ c.function.arguments.zone }}</tool_call>{% endfor %}{{ '\n' }}{% endfor "
    "%}"
    "{{ '</think>' if false }}";

FakeWorkerOptions saying(const std::string& text) {
  FakeWorkerOptions options;
  options.text = text;
  options.ends_at = static_cast<std::uint32_t>(text.size());
  options.chat_template = source;
  return options;
}

std::string body(const std::string& more) {
  return R"({"model":"fake","max_tokens":500,"messages":[{"role":"user","content":"hello"}])" + more + "}";
}

const std::string tools = R"(,"tools":[{"name":"time","description":"d","input_schema":{"type":"object"}}])";
const std::string thought_and_call =
    "<think>\nHm.\n</think>\n\nI ask.\n<tool_call>\n{\"name\": \"time\", \"arguments\": {\"zone\": "
    "\"CET\"}}\n</tool_call>";

/// Kinds of events in order, each with what it says; neighbouring deltas of a block are one.
std::vector<std::string> told(const std::vector<std::string>& events) {
  std::vector<std::string> out;
  for (const auto& event : events) {
    const auto value = parsed(event);
    std::string line(value.at("type").as_string());
    if (line == "content_block_start") line += " " + std::string(value.at("content_block").at("type").as_string());
    if (line == "content_block_delta") {
      const auto& delta = value.at("delta").as_object();
      std::string text;
      for (const char* key : {"text", "thinking", "partial_json"}) {
        if (const auto* piece = delta.if_contains(key)) text += piece->as_string();
      }
      if (!out.empty() && out.back().starts_with("delta ")) {
        out.back() += text;
        continue;
      }
      line = "delta " + text;
    }
    if (line == "message_delta") line += " " + std::string(value.at("delta").at("stop_reason").as_string());
    out.push_back(line);
  }
  return out;
}

TEST(Messages, EventsComeInTheOrderThatClientsInsistOn) {
  Cluster cluster({saying(thought_and_call)});
  const auto events = cluster.stream("/v1/messages", body(tools + R"(,"stream":true)"));
  const std::vector<std::string> expected{
      "message_start",      "content_block_start thinking", "delta Hm.",
      "content_block_stop", "content_block_start text",     "delta I ask.",
      "content_block_stop", "content_block_start tool_use", "delta {\"zone\": \"CET\"}",
      "content_block_stop", "message_delta tool_use",       "message_stop"};
  EXPECT_EQ(told(events), expected);
  const auto start = parsed(events.front()).at("message");
  EXPECT_TRUE(start.at("id").as_string().starts_with("msg_"));
  EXPECT_GT(start.at("usage").at("input_tokens").as_int64(), 0);
  EXPECT_TRUE(start.at("content").as_array().empty());
  const auto usage = parsed(events.at(events.size() - 2)).at("usage");
  EXPECT_EQ(usage.at("output_tokens").as_int64(), static_cast<std::int64_t>(thought_and_call.size() + 1));
}

TEST(Messages, WholeAnswers) {
  FakeWorkerOptions worker = saying(thought_and_call);
  worker.cached_tokens = 16;
  Cluster cluster({worker});
  const auto answer =
      cluster.post("/v1/messages", body(tools + R"(,"system":"Be brief.","tool_choice":{"type":"auto"})"));
  ASSERT_EQ(answer->status, 200) << answer->body;
  const auto whole = parsed(answer->body);
  EXPECT_EQ(whole.at("type").as_string(), "message");
  EXPECT_EQ(whole.at("role").as_string(), "assistant");
  EXPECT_EQ(whole.at("stop_reason").as_string(), "tool_use");
  const auto& content = whole.at("content").as_array();
  ASSERT_EQ(content.size(), 3u);
  EXPECT_EQ(content[0].at("thinking").as_string(), "Hm.");
  EXPECT_EQ(content[1].at("text").as_string(), "I ask.");
  EXPECT_EQ(content[2].at("name").as_string(), "time");
  EXPECT_EQ(content[2].at("input").at("zone").as_string(), "CET");
  EXPECT_EQ(whole.at("usage").at("cache_read_input_tokens").as_int64(), 16);
  const auto prompt = cluster.workers[0]->generates().front().spec.prompt;
  EXPECT_EQ(whole.at("usage").at("input_tokens").as_int64(), static_cast<std::int64_t>(prompt.size()) - 16);
}

TEST(Messages, StopSequencesAreNamed) {
  Cluster cluster({FakeWorkerOptions{}});
  const auto whole = parsed(cluster.post("/v1/messages", body(R"(,"stop_sequences":["zzz","de"])"))->body);
  EXPECT_EQ(whole.at("content").at(0).at("text").as_string(), "abc");
  EXPECT_EQ(whole.at("stop_reason").as_string(), "stop_sequence");
  EXPECT_EQ(whole.at("stop_sequence").as_string(), "de");
  const auto cut = parsed(
      cluster.post("/v1/messages", R"({"model":"fake","max_tokens":2,"messages":[{"role":"user","content":"a"}]})")
          ->body);
  EXPECT_EQ(cut.at("stop_reason").as_string(), "max_tokens");
  EXPECT_TRUE(cut.at("stop_sequence").is_null());
}

TEST(Messages, ACutCallIsTextInAWholeAnswer) {
  Cluster cluster({saying("<tool_call>{\"name\": \"time\", \"arguments\": {\"zone\": \"CET\"}}")});
  const auto whole =
      parsed(cluster
                 .post("/v1/messages",
                       R"({"model":"fake","max_tokens":50,"messages":[{"role":"user","content":"a"}])" + tools + "}")
                 ->body);
  ASSERT_EQ(whole.at("content").as_array().size(), 1u);
  EXPECT_EQ(whole.at("content").at(0).at("type").as_string(), "text");
  EXPECT_EQ(whole.at("stop_reason").as_string(), "max_tokens");
}

TEST(Messages, ConversationsWithToolsReachTheTemplate) {
  Cluster cluster({saying("ok")});
  const std::string conversation = R"({"model":"fake","max_tokens":9,"system":[{"type":"text","text":"S"}],"messages":[
    {"role":"user","content":[{"type":"text","text":"When?","cache_control":{"type":"ephemeral"}}]},
    {"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":""},{"type":"tool_use","id":"x","name":"time",
      "input":{"zone":"CET"}}]},
    {"role":"user","content":[{"type":"tool_result","tool_use_id":"x","content":[{"type":"text","text":"noon"}]},
      {"type":"text","text":"And now?"}]}])" +
                                   tools + "}";
  ASSERT_EQ(cluster.post("/v1/messages", conversation)->status, 200);
  std::string prompt;
  for (const TokenId token : cluster.workers[0]->generates().front().spec.prompt) prompt += static_cast<char>(token);
  EXPECT_EQ(prompt, "system: S\nuser: When?\nassistant: <tool_call>CET</tool_call>\ntool: noon\nuser: And now?\n");
  const auto count = cluster.post("/v1/messages/count_tokens", conversation);
  EXPECT_EQ(parsed(count->body).at("input_tokens").as_int64(), static_cast<std::int64_t>(prompt.size()));
}

TEST(Messages, ErrorsHaveItsShape) {
  Cluster cluster({FakeWorkerOptions{}});
  struct Row {
    std::string path, body;
    int status;
    std::string type, names;
  };
  const std::string user = R"("messages":[{"role":"user","content":"a"}])";
  const std::string start = R"({"model":"fake","max_tokens":5,)";
  for (const auto& row : std::vector<Row>{
           {"/v1/messages", "{", 400, "invalid_request_error", ""},
           {"/v1/messages", R"({"model":"fake",)" + user + "}", 400, "invalid_request_error", "max_tokens"},
           {"/v1/messages", R"({"model":"no","max_tokens":5,)" + user + "}", 404, "not_found_error", "no"},
           {"/v1/messages", start + user + R"(,"tools":[{"type":"bash_20250124","name":"bash"}]})", 400,
            "invalid_request_error", "tools[0].type"},
           {"/v1/messages", start + user + R"(,"stop_sequences":[""]})", 400, "invalid_request_error",
            "stop_sequences"},
           {"/v1/messages", start + user + R"(,"tool_choice":{"type":"any"}})", 400, "invalid_request_error",
            "tool_choice"},
           {"/v1/messages", start + R"("messages":[{"role":"user","content":[{"type":"image"}]}]})", 400,
            "invalid_request_error", "image"},
           {"/v1/messages", start + R"("messages":[{"role":"assistant","content":"a"}]})", 400, "invalid_request_error",
            "assistant"},
           {"/v1/messages", start + R"("messages":[{"role":"tool","content":"a"}]})", 400, "invalid_request_error",
            "role"},
           {"/v1/messages/count_tokens", R"({"model":"fake","messages":[]})", 400, "invalid_request_error", "messages"},
           {"/v1/messages/count_tokens", R"({"model":"no",)" + user + "}", 404, "not_found_error", "no"},
       }) {
    const auto answer = cluster.post(row.path, row.body);
    EXPECT_EQ(answer->status, row.status) << row.body << answer->body;
    const auto value = parsed(answer->body);
    EXPECT_EQ(value.at("type").as_string(), "error");
    EXPECT_EQ(value.at("error").at("type").as_string(), row.type) << row.body;
    EXPECT_NE(value.at("error").at("message").as_string().find(row.names), std::string::npos) << answer->body;
  }
  EXPECT_EQ(cluster.get("/v1/messages")->status, 405);
}

TEST(Messages, ErrorsWithinAStreamAreEvents) {
  FakeWorkerOptions worker;
  worker.faults.dies_before = 3;
  router::RouterConfig config;
  config.limits.migrations = 0;
  Cluster cluster({worker}, config);
  const auto events = cluster.stream("/v1/messages", body(R"(,"stream":true)"));
  ASSERT_GE(events.size(), 2u);
  EXPECT_EQ(parsed(events.front()).at("type").as_string(), "message_start");
  EXPECT_EQ(events.back(), "broken");
  const auto error = parsed(events[events.size() - 2]);
  EXPECT_EQ(error.at("type").as_string(), "error");
  EXPECT_EQ(error.at("error").at("type").as_string(), "overloaded_error");
}

TEST(Messages, ItsKeysAreTakenAsWell) {
  const Folder folder;
  router::RouterConfig config;
  config.api_keys_file = folder.write("keys", key_line("good", "team"));
  Cluster cluster({FakeWorkerOptions{}}, config);
  const auto refused = cluster.post("/v1/messages", body(""), {{"x-api-key", "bad"}});
  EXPECT_EQ(refused->status, 401);
  EXPECT_EQ(parsed(refused->body).at("error").at("type").as_string(), "authentication_error");
  EXPECT_EQ(cluster.post("/v1/messages", body(""), {{"x-api-key", "good"}})->status, 200);
  EXPECT_EQ(cluster.post("/v1/messages", body(""), bearer("good"))->status, 200);
  EXPECT_EQ(cluster.get("/v1/models", {{"x-api-key", "good"}})->status, 200);
  EXPECT_EQ(cluster.get("/v1/models", {{"x-api-key", "good"}, {"authorization", "Bearer good"}})->status, 200);
  EXPECT_EQ(cluster.get("/v1/models", {{"x-api-key", "good"}, {"authorization", "Bearer bad"}})->status, 401);
  EXPECT_EQ(cluster.get("/v1/models", {{"x-api-key", "good"}, {"authorization", "Basic good"}})->status, 401);
  EXPECT_EQ(cluster.get("/v1/models", {{"x-api-key", ""}})->status, 401);
}

}  // namespace
}  // namespace penstock::test
