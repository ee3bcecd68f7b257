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

TEST(RouterApi, ServesSmallRoutes) {
  Cluster cluster({FakeWorkerOptions{}});
  EXPECT_EQ(cluster.get("/health")->status, 200);
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
