// What the public API and the admin pages say, over real sockets.
#include "tests/integration/router/cluster.hpp"

namespace penstock::test {
namespace {

struct BadRequest {
  std::string body;
  int status;
  std::string param;
};

TEST(RouterApi, BadInputGetsStatusAndParam) {
  Cluster cluster({FakeWorkerOptions{}});
  const std::string long_text(5000, 'x');
  const std::vector<BadRequest> rows{
      {"{", 400, ""},
      {chat_body(R"(,"temperature":1e999)"), 400, ""},
      {R"({"model":"other","messages":[{"role":"user","content":"hi"}]})", 404, "model"},
      {R"({"model":"../../etc/passwd","messages":[{"role":"user","content":"hi"}]})", 404, "model"},
      {chat_body(R"(,"n":99)"), 400, "n"},
      {chat_body(R"(,"temperature":-1)"), 400, "temperature"},
      {chat_body(R"(,"logit_bias":{"99999":1})"), 400, "logit_bias"},
      {chat_body(R"(,"max_tokens":100000)"), 400, "messages"},
      {R"({"model":"fake","messages":[{"role":"user","content":")" + long_text + R"("}]})", 400, "messages"},
      {chat_body(R"(,"response_format":{"type":"json_schema"})"), 400, "response_format"},
  };
  for (const auto& row : rows) {
    const auto answer = cluster.post("/v1/chat/completions", row.body);
    ASSERT_TRUE(answer) << answer.error().message;
    EXPECT_EQ(answer->status, row.status) << row.body.substr(0, 100) << answer->body;
    const auto error = parsed(answer->body).at("error");
    EXPECT_TRUE(error.at("message").is_string());
    if (row.param.empty()) {
      EXPECT_TRUE(error.at("param").is_null()) << answer->body;
    } else {
      EXPECT_EQ(error.at("param").as_string(), row.param);
    }
    EXPECT_EQ(answer->headers.find("x-should-retry").value_or(""), "false");
  }
  EXPECT_EQ(cluster.post("/v1/chat/completions", chat_body(R"(,"max_tokens":3)"))->status, 200);
}

TEST(RouterApi, PromptLogprobsAreShownAsVllmDoes) {
  Cluster cluster({FakeWorkerOptions{}});
  const auto completion = cluster.post(
      "/v1/completions", R"({"model":"fake","prompt":["abc","xy"],"n":2,"max_tokens":1,"prompt_logprobs":2})");
  ASSERT_EQ(completion->status, 200) << completion->body;
  const auto whole = parsed(completion->body);
  const auto& choices = whole.at("choices").as_array();
  ASSERT_EQ(choices.size(), 4u);
  for (std::size_t i = 0; i < choices.size(); ++i) {
    const auto& list = choices[i].at("prompt_logprobs").as_array();
    ASSERT_EQ(list.size(), i < 2 ? 3u : 2u);
    EXPECT_TRUE(list[0].is_null());
    const auto& last = list.back().at(i < 2 ? "99" : "121");  // c, y
    EXPECT_EQ(last.at("rank").as_int64(), 1);
    EXPECT_EQ(last.at("decoded_token").as_string(), i < 2 ? "c" : "y");
    EXPECT_EQ(list.back().as_object().size(), 2u);
  }
  const auto chat = cluster.post("/v1/chat/completions", chat_body(R"(,"max_tokens":1,"prompt_logprobs":0)"));
  ASSERT_EQ(chat->status, 200) << chat->body;
  EXPECT_GT(parsed(chat->body).at("prompt_logprobs").as_array().size(), 5u);
  EXPECT_FALSE(parsed(cluster.post("/v1/completions", R"({"model":"fake","prompt":"a","max_tokens":1})")->body)
                   .at("choices")
                   .at(0)
                   .as_object()
                   .contains("prompt_logprobs"));
}

TEST(RouterApi, ScoresAPromptWithoutOutput) {
  Cluster cluster({FakeWorkerOptions{}});
  const auto answer =
      cluster.post("/v1/completions", R"({"model":"fake","prompt":"abc","max_tokens":0,"echo":true,"logprobs":1})");
  ASSERT_EQ(answer->status, 200) << answer->body;
  const auto whole = parsed(answer->body);
  const auto& choice = whole.at("choices").at(0);
  EXPECT_EQ(choice.at("text").as_string(), "abc");
  const auto& logprobs = choice.at("logprobs");
  ASSERT_EQ(logprobs.at("tokens").as_array().size(), 3u);
  EXPECT_TRUE(logprobs.at("token_logprobs").at(0).is_null());
  EXPECT_NEAR(logprobs.at("token_logprobs").at(2).to_number<double>(), -0.25, 1e-6);
  EXPECT_EQ(whole.at("usage").at("completion_tokens").as_int64(), 0);
}

TEST(RouterApi, APromptOfManyFramesArrivesWhole) {
  FakeWorkerOptions options;
  options.context_tokens = 2'000'000;
  router::RouterConfig config;
  config.limits.body = {16u << 20};
  Cluster cluster({options}, config);
  std::string text(1'500'000, 'x');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = i % 8 == 7 ? ' ' : static_cast<char>('a' + i % 26);
  const auto answer = cluster.post("/v1/completions", R"({"model":"fake","max_tokens":2,"prompt":")" + text + "\"}");
  ASSERT_TRUE(answer) << answer.error().message;
  ASSERT_EQ(answer->status, 200) << answer->body;
  EXPECT_EQ(parsed(answer->body).at("usage").at("prompt_tokens").as_int64(), 1'500'000);
  const auto& prompt = cluster.workers[0]->generates().at(0).spec.prompt;
  ASSERT_EQ(prompt.size(), text.size());
  for (std::size_t i = 0; i < text.size(); ++i) ASSERT_EQ(prompt[i], static_cast<unsigned char>(text[i])) << i;
}

TEST(RouterApi, TracesArePassedOn) {
  const std::string trace = "0af7651916cd43dd8448eb211c80319c", parent = "b7ad6b7169203331";
  FakeWorkerOptions options;
  options.faults.refuses = 1;
  options.faults.refusal = {ErrorCode::internal, "scripted"};
  Cluster cluster({options});
  const http::Headers headers{{"traceparent", "00-" + trace + "-" + parent + "-01"}};
  EXPECT_EQ(cluster.post("/v1/chat/completions", chat_body(R"(,"max_tokens":1)"), headers)->status, 500);
  const std::string passed = cluster.workers[0]->generates().at(0).spec.trace;
  EXPECT_TRUE(passed.starts_with("00-" + trace + "-"));
  EXPECT_TRUE(passed.ends_with("-01"));
  EXPECT_EQ(passed.find(parent), std::string::npos) << "a span of its own";
  EXPECT_TRUE(cluster.log->contains({"request failed", "traceparent=" + passed}));
  EXPECT_EQ(cluster.post("/v1/chat/completions", chat_body(R"(,"max_tokens":1)"))->status, 200);
  EXPECT_EQ(cluster.workers[0]->generates().at(1).spec.trace, "") << "none is invented";
  router::RouterConfig config;
  config.begin_traces = true;
  Cluster tracing({FakeWorkerOptions{}}, config);
  EXPECT_EQ(tracing.post("/v1/chat/completions", chat_body(R"(,"max_tokens":1)"))->status, 200);
  EXPECT_EQ(tracing.workers[0]->generates().at(0).spec.trace.size(), 55u);
}

TEST(RouterApi, ServesSmallRoutes) {
  Cluster cluster({FakeWorkerOptions{}});
  for (const char* path : {"/health", "/live", "/ping"}) {
    EXPECT_EQ(cluster.get(path)->status, 200);
    EXPECT_EQ(cluster.get(path)->body, "");
  }
  const auto models = parsed(cluster.get("/v1/models")->body);
  EXPECT_EQ(models.at("object").as_string(), "list");
  EXPECT_EQ(models.at("data").at(0).at("id").as_string(), "fake");
  EXPECT_EQ(cluster.get("/v1/models/fake")->status, 200);
  EXPECT_EQ(cluster.get("/v1/models/none")->status, 404);
  EXPECT_EQ(cluster.get("/version")->status, 200);
  const auto tokens = parsed(cluster.post("/tokenize", R"({"prompt":"abc"})")->body);
  EXPECT_EQ(tokens.at("count").as_int64(), 3);
  EXPECT_EQ(tokens.at("tokens").at(0).as_int64(), 'a');
  const auto text = parsed(cluster.post("/detokenize", R"({"tokens":[97,98]})")->body);
  EXPECT_EQ(text.at("prompt").as_string(), "ab");
  EXPECT_EQ(cluster.post("/detokenize", R"({"tokens":[99999]})")->status, 400);
}

TEST(RouterApi, ALongTextIsTokenisedBesideEverythingElse) {
  Cluster cluster({FakeWorkerOptions{}});
  for (const char* path : {"/tokenize", "/detokenize"}) {
    std::string body = std::string(path) == "/tokenize" ? R"({"prompt":")" : R"({"tokens":[97)";
    const std::string_view more = std::string(path) == "/tokenize" ? "0 1 2 3 4 5 " : ",97,97,97,97";
    while (body.size() < 2'000'000) body += more;
    body += std::string(path) == "/tokenize" ? "\"}" : "]}";
    const auto status = cluster.post_later(path, body);
    int answered = 0;
    while (*status == 0 && answered < 100'000) {
      ASSERT_EQ(cluster.get("/version")->status, 200);
      ++answered;
    }
    EXPECT_EQ(*status, 200);
    EXPECT_GE(answered, 50) << path;
  }
}

TEST(RouterApi, SaysWhatIsNotThere) {
  Cluster cluster({FakeWorkerOptions{}});
  EXPECT_EQ(cluster.post("/v1/embeddings", "{}")->status, 501);
  EXPECT_EQ(cluster.post("/v1/responses", "{}")->status, 501);
  EXPECT_EQ(cluster.get("/nothing")->status, 404);
  EXPECT_EQ(cluster.get("/metrics")->status, 404);
  const auto wrong = cluster.get("/v1/chat/completions");
  EXPECT_EQ(wrong->status, 405);
  EXPECT_EQ(wrong->headers.find("allow").value_or(""), "POST");
}

TEST(RouterApi, ExplainsItsChoice) {
  Cluster cluster({FakeWorkerOptions{}});
  http::Headers headers;
  headers.set("x-penstock-explain", "1");
  headers.set("x-request-id", "asked-by-test");
  const auto answer = cluster.post("/v1/chat/completions", chat_body(R"(,"max_tokens":3)"), headers);
  ASSERT_EQ(answer->status, 200);
  EXPECT_NE(answer->headers.find("x-penstock-route").value_or("").find(cluster.workers[0]->address()),
            std::string_view::npos);
  const auto page = parsed(cluster.admin("/debug/routes")->body);
  const auto& decision = page.at("decisions").at(0);
  EXPECT_EQ(decision.at("request_id").as_string(), "asked-by-test");
  EXPECT_TRUE(decision.at("candidates").at(0).as_object().contains("cost"));
  EXPECT_EQ(cluster.admin("/debug/routes")->body.find("hello"), std::string::npos);
}

TEST(RouterApi, EveryMetricIsThereFromTheStart) {
  Cluster cluster({FakeWorkerOptions{}});
  const std::string page = cluster.admin("/metrics")->body;
  for (const char* name : {"time_to_first_token_seconds_count",
                           "inter_token_latency_seconds_count",
                           "queue_seconds_count",
                           "queue_requests",
                           "queue_tokens",
                           "request_duration_seconds_count",
                           "route_decision_seconds_count",
                           "prepare_seconds_count",
                           "cached_tokens_total",
                           "prompt_tokens_total",
                           "output_tokens_total",
                           "retries_total",
                           "migrations_total",
                           "reoffers_total",
                           "refusals_total",
                           "aborts_sent_total",
                           "token_gaps_total",
                           "token_repeats_total",
                           "clients_slow_total",
                           "split_total",
                           "index_gaps",
                           "index_workers_unsynced",
                           "index_staleness_seconds",
                           "placements_whole",
                           "placements_split",
                           "workers_lost_total",
                           "workers_refused_total",
                           "requests_active"}) {
    EXPECT_NE(page.find("\npenstock_router_" + std::string(name) + " 0\n"), std::string::npos) << name;
  }
  for (const char* outcome : {"ok", "cancelled", "client_error", "server_error"}) {
    const std::string series = "penstock_router_requests_total{outcome=\"" + std::string(outcome) + "\"} 0";
    EXPECT_NE(page.find(series), std::string::npos) << series;
  }
  EXPECT_GT(cluster.metric("penstock_router_workers_connected"), 0);
  EXPECT_GE(cluster.metric("penstock_router_load_report_age_seconds"), 0);
  EXPECT_GE(cluster.metric("penstock_router_index_bytes"), 0);
}

TEST(RouterApi, AdminPagesAreThere) {
  Cluster cluster({FakeWorkerOptions{}});
  cluster.post("/v1/chat/completions", chat_body(R"(,"max_tokens":3)"));
  EXPECT_EQ(cluster.admin("/healthz")->status, 200);
  EXPECT_EQ(cluster.admin("/readyz")->status, 200);
  const std::string metrics = cluster.admin("/metrics")->body;
  for (const char* name :
       {"penstock_router_requests_total{outcome=\"ok\"} 1", "penstock_router_time_to_first_token_seconds_count 1",
        "penstock_router_migrations_total 0", "penstock_router_index_bytes"}) {
    EXPECT_NE(metrics.find(name), std::string::npos) << name;
  }
}

TEST(RouterApi, UnreadableKeysKeepItFromStarting) {
  router::RouterConfig config;
  config.api_keys_file = "no-such-file";
  EXPECT_THROW(Cluster({FakeWorkerOptions{}}, config), std::runtime_error);
}

}  // namespace
}  // namespace penstock::test
