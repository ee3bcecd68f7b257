// Bodies in, requests or errors with `param` out.
#include <gtest/gtest.h>

#include "router/core/api/validated_request.hpp"

namespace penstock::router {
namespace {

const ApiLimits limits;

std::string chat(const std::string& more) {
  return R"({"model":"m","messages":[{"role":"user","content":"hi"}])" + more + "}";
}
std::string completion(const std::string& more) {
  return R"({"model":"m","prompt":"hi")" + more + "}";
}

struct BadBody {
  Endpoint endpoint;
  std::string body;
  std::string param;
};

TEST(RequestParser, RefusesBadBodiesAndNamesTheField) {
  const std::vector<BadBody> rows{
      {Endpoint::chat, R"({"messages":[{"role":"user","content":"hi"}]})", "model"},
      {Endpoint::chat, R"({"model":7,"messages":[]})", "model"},
      {Endpoint::chat, R"({"model":"m"})", "messages"},
      {Endpoint::chat, R"({"model":"m","messages":[]})", "messages"},
      {Endpoint::chat, R"({"model":"m","messages":[{"role":"x","content":"hi"}]})", "messages[0].role"},
      {Endpoint::chat, R"({"model":"m","messages":[{"role":"user","content":null}]})", "messages[0].content"},
      {Endpoint::chat, R"({"model":"m","messages":[{"role":"user","content":[{"type":"image_url"}]}]})",
       "messages[0].content[0].type"},
      {Endpoint::chat, chat(R"(,"n":0)"), "n"},
      {Endpoint::chat, chat(R"(,"n":17)"), "n"},
      {Endpoint::chat, chat(R"(,"n":"2")"), "n"},
      {Endpoint::chat, chat(R"(,"n":1.0)"), "n"},
      {Endpoint::chat, chat(R"(,"temperature":-1)"), "temperature"},
      {Endpoint::chat, chat(R"(,"temperature":1e308)"), "temperature"},
      {Endpoint::chat, chat(R"(,"top_p":0)"), "top_p"},
      {Endpoint::chat, chat(R"(,"top_p":1.0001)"), "top_p"},
      {Endpoint::chat, chat(R"(,"top_k":-2)"), "top_k"},
      {Endpoint::chat, chat(R"(,"min_p":2)"), "min_p"},
      {Endpoint::chat, chat(R"(,"presence_penalty":2.5)"), "presence_penalty"},
      {Endpoint::chat, chat(R"(,"repetition_penalty":0)"), "repetition_penalty"},
      {Endpoint::chat, chat(R"(,"max_tokens":0)"), "max_tokens"},
      {Endpoint::chat, chat(R"(,"max_tokens":4294967296)"), "max_tokens"},
      {Endpoint::chat, chat(R"(,"max_completion_tokens":-1)"), "max_completion_tokens"},
      {Endpoint::chat, chat(R"(,"min_tokens":9,"max_tokens":8)"), "min_tokens"},
      {Endpoint::chat, chat(R"(,"seed":1.5)"), "seed"},
      {Endpoint::chat, chat(R"(,"stop":["a","b","c","d","e"])"), "stop"},
      {Endpoint::chat, chat(R"(,"stop":"")"), "stop"},
      {Endpoint::chat, chat(R"(,"stop":[1])"), "stop[0]"},
      {Endpoint::chat, chat(R"(,"stop_token_ids":[-1])"), "stop_token_ids[0]"},
      {Endpoint::chat, chat(R"(,"logit_bias":{"x":1})"), "logit_bias"},
      {Endpoint::chat, chat(R"(,"logit_bias":{"5":101})"), "logit_bias"},
      {Endpoint::chat, chat(R"(,"top_logprobs":3)"), "top_logprobs"},
      {Endpoint::chat, chat(R"(,"prompt_logprobs":-1)"), "prompt_logprobs"},
      {Endpoint::chat, chat(R"(,"prompt_logprobs":21)"), "prompt_logprobs"},
      {Endpoint::chat, chat(R"(,"prompt_logprobs":true)"), "prompt_logprobs"},
      {Endpoint::completions, completion(R"(,"prompt_logprobs":1,"stream":true)"), "prompt_logprobs"},
      {Endpoint::chat, chat(R"(,"logprobs":true,"top_logprobs":21)"), "top_logprobs"},
      {Endpoint::chat, chat(R"(,"stream_options":{"include_usage":true})"), "stream_options"},
      {Endpoint::chat, chat(R"(,"response_format":{"type":"json_object"})"), "response_format"},
      {Endpoint::chat, chat(R"(,"response_format":{"type":"x"})"), "response_format.type"},
      {Endpoint::chat, chat(R"(,"tool_choice":"required")"), "tool_choice"},
      {Endpoint::chat, chat(R"(,"tools":[{"type":"retrieval"}])"), "tools[0].type"},
      {Endpoint::chat, chat(R"(,"guided_json":{})"), "guided_json"},
      {Endpoint::chat, chat(R"(,"chat_template":"x")"), "chat_template"},
      {Endpoint::chat, chat(R"(,"echo":true)"), "echo"},
      {Endpoint::completions, R"({"model":"m"})", "prompt"},
      {Endpoint::completions, R"({"model":"m","prompt":[]})", "prompt"},
      {Endpoint::completions, R"({"model":"m","prompt":[1,"a"]})", "prompt[1]"},
      {Endpoint::completions, R"({"model":"m","prompt":["a",1]})", "prompt[1]"},
      {Endpoint::completions, R"({"model":"m","prompt":[[1],[]]})", "prompt[1]"},
      {Endpoint::completions, R"({"model":"m","prompt":[-1]})", "prompt[0]"},
      {Endpoint::completions, completion(R"(,"logprobs":21)"), "logprobs"},
      {Endpoint::completions, completion(R"(,"suffix":"x")"), "suffix"},
      {Endpoint::completions, completion(R"(,"best_of":4)"), "best_of"},
      {Endpoint::completions, completion(R"(,"n":4,"best_of":2)"), "best_of"},
  };
  for (const auto& row : rows) {
    const auto parsed = parse_request(row.endpoint, row.body, limits);
    ASSERT_FALSE(parsed) << row.body;
    EXPECT_EQ(parsed.error().status, 400) << row.body;
    EXPECT_EQ(parsed.error().param.value_or("none"), row.param) << row.body;
    EXPECT_FALSE(parsed.error().message.empty());
  }
}

TEST(RequestParser, RefusesWhatIsNoJsonObject) {
  for (const char* body : {"", "[]", "null", "{", "{} {}", "{\"model\":\"a\",\"model\":\"b\"}", "{\"model\":NaN}"}) {
    const auto parsed = parse_request(Endpoint::chat, body, limits);
    ASSERT_FALSE(parsed) << body;
    EXPECT_EQ(parsed.error().status, 400);
    EXPECT_EQ(parsed.error().code, "invalid_json");
  }
}

TEST(RequestParser, ReadsAllOfChat) {
  const auto parsed = parse_request(
      Endpoint::chat,
      chat(R"(,"n":3,"temperature":1e-30,"top_p":0.5,"top_k":-1,"min_p":0.1,"seed":-1,"stop":"END","max_tokens":7,
              "max_completion_tokens":9,"logprobs":true,"top_logprobs":2,"logit_bias":{"9":-100,"3":5},"stream":true,
              "stream_options":{"include_usage":true},"user":"u","unknown_thing":1,"presence_penalty":null,
              "response_format":{"type":"text"},"tool_choice":"none","ignore_eos":true,"cache_salt":"s")"),
      limits);
  ASSERT_TRUE(parsed) << parsed.error().message;
  const RequestFields& fields = **parsed;
  EXPECT_EQ(fields.n, 3u);
  EXPECT_EQ(fields.sampling.temperature, 0.0f);
  EXPECT_EQ(fields.sampling.top_k, 0u);
  EXPECT_EQ(fields.sampling.seed, 0xFFFFFFFFFFFFFFFFull);
  EXPECT_TRUE(fields.has_seed);
  EXPECT_EQ(fields.stops, std::vector<std::string>{"END"});
  EXPECT_EQ(fields.tokens_max, 9u);
  EXPECT_EQ(fields.logprobs, 2u);
  EXPECT_EQ(fields.sampling.logit_bias.front(), (std::pair<TokenId, float>{3, 5.0f}));
  EXPECT_EQ(fields.stream_usage, StreamUsage::last_chunk);
  EXPECT_TRUE(fields.sampling.ignore_eos);
  EXPECT_EQ(fields.cache_salt, "s");
  EXPECT_EQ(fields.unknown_fields, 1u);
}

TEST(RequestParser, WritesTemplateVariables) {
  const auto parsed = parse_request(Endpoint::chat, R"({"model":"m","messages":[
      {"role":"developer","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
      {"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function",
        "function":{"name":"f","arguments":"{\"x\":1}"}}]},
      {"role":"tool","tool_call_id":"1","content":"r"}],
      "tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}]})",
                                    limits);
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(
      std::get<ChatPrompt>((*parsed)->prompts.at(0)).variables,
      R"({"messages":[{"role":"system","content":"a\nb"},{"role":"assistant","content":"","tool_calls":[{"id":"1",)"
      R"("type":"function","function":{"name":"f","arguments":{"x":1}}}]},{"role":"tool","content":"r",)"
      R"("tool_call_id":"1"}],"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}],)"
      R"("add_generation_prompt":true})");
}

TEST(RequestParser, ReadsEveryFormOfPrompt) {
  const auto count = [](const char* prompt) {
    const auto parsed =
        parse_request(Endpoint::completions, std::string(R"({"model":"m","prompt":)") + prompt + "}", limits);
    return parsed ? (*parsed)->prompts.size() : 0;
  };
  EXPECT_EQ(count(R"("a")"), 1u);
  EXPECT_EQ(count(R"(["a","b"])"), 2u);
  EXPECT_EQ(count("[1,2,3]"), 1u);
  EXPECT_EQ(count("[[1],[2,3]]"), 2u);
}

}  // namespace
}  // namespace penstock::router
