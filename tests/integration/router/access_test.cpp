// Who may call the public API, and how: keys, tenants, origins of web pages, TLS.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "common/digest/digest.hpp"
#include "tests/integration/http/test_certificate.hpp"
#include "tests/integration/router/cluster.hpp"
#include "tests/integration/router/keys.hpp"

namespace penstock::test {
namespace {

const std::string chat = "/v1/chat/completions";

router::RouterConfig with_keys(const Folder& folder, const std::string& text) {
  router::RouterConfig config;
  config.api_keys_file = folder.write("keys", text);
  return config;
}

const std::string short_chat = chat_body(R"(,"max_tokens":2)");

TEST(ApiKeys, OnlyKnownKeysAreServed) {
  const Folder folder;
  Cluster cluster({FakeWorkerOptions{}}, with_keys(folder, "# comment\n" + key_line("good", "team")));
  const auto without = cluster.post(chat, short_chat);
  ASSERT_EQ(without->status, 401);
  EXPECT_EQ(without->headers.find("www-authenticate").value_or(""), "Bearer");
  const auto error = parsed(without->body).at("error");
  EXPECT_EQ(error.at("code").as_string(), "invalid_api_key");
  EXPECT_EQ(error.at("type").as_string(), "authentication_error");
  EXPECT_TRUE(error.at("param").is_null());
  EXPECT_EQ(cluster.post(chat, short_chat, bearer("goodx"))->status, 401);
  EXPECT_EQ(cluster.post(chat, short_chat, bearer(digest::sha256_hex("good")))->status, 401);
  http::Headers twice = bearer("good");
  twice.add("authorization", "Bearer good");
  EXPECT_NE(cluster.post(chat, short_chat, twice)->status, 200);
  EXPECT_EQ(cluster.get("/v1/models")->status, 401);
  EXPECT_EQ(cluster.post("/tokenize", R"({"prompt":"a"})")->status, 401);
  for (const char* path : {"/health", "/live", "/ping"}) EXPECT_EQ(cluster.get(path)->status, 200);  // of probes
  EXPECT_EQ(cluster.post(chat, short_chat, bearer("good"))->status, 200);
  EXPECT_EQ(cluster.workers[0]->generates().size(), 1u);
  EXPECT_FALSE(cluster.log->contains({"good"}));
}

TEST(ApiKeys, ATenantHasItsOwnCacheAndLimits) {
  const Folder folder;
  Cluster cluster({FakeWorkerOptions{}},
                  with_keys(folder, key_line("a", "first requests-per-minute=2") + key_line("b", "second")));
  ASSERT_EQ(cluster.post(chat, short_chat, bearer("a"))->status, 200);
  ASSERT_EQ(cluster.post(chat, chat_body(R"(,"max_tokens":2,"cache_salt":"own")"), bearer("b"))->status, 200);
  const auto& seen = cluster.workers[0]->generates();
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_NE(seen[0].spec.cache_salt, "") << "tenants would share KV, and could probe each other's prompts";
  EXPECT_NE(seen[0].spec.cache_salt, seen[1].spec.cache_salt);
  EXPECT_NE(seen[1].spec.cache_salt, "own");
  EXPECT_EQ(cluster.post(chat, short_chat, bearer("a"))->status, 200);
  const auto over = cluster.post(chat, short_chat, bearer("a"));
  ASSERT_EQ(over->status, 429);
  EXPECT_EQ(parsed(over->body).at("error").at("code").as_string(), "rate_limit_exceeded");
  const int seconds = std::stoi(std::string(over->headers.find("retry-after").value_or("0")));
  EXPECT_GE(seconds, 25);
  EXPECT_LE(seconds, 30);
  EXPECT_EQ(cluster.post(chat, short_chat, bearer("b"))->status, 200);
}

TEST(ApiKeys, WithoutKeysNobodyIsLimited) {
  FakeWorkerOptions slow;
  slow.sequences_max = 200;
  slow.step_time = std::chrono::milliseconds(20);
  Cluster cluster({slow});
  std::vector<std::shared_ptr<int>> statuses;
  for (int i = 0; i < 100; ++i) statuses.push_back(cluster.post_later(chat, chat_body(R"(,"max_tokens":40)")));
  EXPECT_TRUE(cluster.run_until([&] { return cluster.workers[0]->generates().size() == 100; }));
  EXPECT_TRUE(cluster.run_until(
      [&] { return std::all_of(statuses.begin(), statuses.end(), [](const auto& s) { return *s == 200; }); }));
}

TEST(ApiKeys, RequestsAtOnceAreLimitedWhileTheyRun) {
  const Folder folder;
  FakeWorkerOptions slow;
  slow.step_time = std::chrono::milliseconds(20);
  Cluster cluster({slow}, with_keys(folder, key_line("a", "first requests-at-once=1")));
  const auto running = cluster.post_later(chat, chat_body(R"(,"max_tokens":20)"), bearer("a"));
  ASSERT_TRUE(cluster.run_until([&] { return !cluster.workers[0]->generates().empty(); }));
  EXPECT_EQ(cluster.post(chat, short_chat, bearer("a"))->status, 429);
  EXPECT_EQ(cluster.post("/tokenize", R"({"prompt":"a"})", bearer("a"))->status, 429);
  ASSERT_TRUE(cluster.run_until([&] { return *running != 0; }));
  EXPECT_EQ(*running, 200);
  EXPECT_EQ(cluster.post(chat, short_chat, bearer("a"))->status, 200);
}

TEST(ApiKeys, AChangedFileTakesEffectAndABrokenOneDoesNot) {
  const Folder folder;
  Cluster cluster({FakeWorkerOptions{}}, with_keys(folder, key_line("old", "team")));
  ASSERT_EQ(cluster.post(chat, short_chat, bearer("old"))->status, 200);
  folder.write("keys", "this is no key file\n");
  ASSERT_TRUE(cluster.run_until([&] { return cluster.log->contains({"key file is wrong", "line 1"}); }));
  EXPECT_EQ(cluster.post(chat, short_chat, bearer("old"))->status, 200);
  folder.write("keys", "");  // an emptied file never opens the door
  ASSERT_TRUE(cluster.run_until([&] { return cluster.log->contains({"key file is wrong", "has no key"}); }));
  EXPECT_EQ(cluster.post(chat, short_chat)->status, 401);
  folder.write("keys", key_line("new", "team"));
  ASSERT_TRUE(cluster.run_until([&] { return cluster.log->contains({"key file read"}); }));
  EXPECT_EQ(cluster.post(chat, short_chat, bearer("old"))->status, 401);
  EXPECT_EQ(cluster.post(chat, short_chat, bearer("new"))->status, 200);
  std::filesystem::remove(folder.file("keys"));
  ASSERT_TRUE(cluster.run_until([&] { return cluster.log->contains({"key file can't be read"}); }));
  EXPECT_EQ(cluster.post(chat, short_chat, bearer("new"))->status, 200);
}

TEST(Cors, OnlyNamedOriginsMayRead) {
  router::RouterConfig config;
  config.cors_origins = {"https://app.example"};
  Cluster cluster({FakeWorkerOptions{}}, config);
  http::Headers page{{"origin", "https://app.example"}};
  const auto answer = cluster.post(chat, short_chat, page);
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(answer->headers.find("access-control-allow-origin").value_or(""), "https://app.example");
  EXPECT_EQ(answer->headers.find("vary").value_or(""), "origin");
  EXPECT_NE(answer->headers.find("access-control-expose-headers").value_or("").find("x-request-id"),
            std::string_view::npos);
  const auto refused = cluster.post(chat, "{", page);  // errors can be read, too
  EXPECT_EQ(refused->status, 400);
  EXPECT_EQ(refused->headers.find("access-control-allow-origin").value_or(""), "https://app.example");
  const auto stranger = cluster.post(chat, short_chat, {{"origin", "https://evil.example"}});
  EXPECT_FALSE(stranger->headers.find("access-control-allow-origin"));
}

TEST(Cors, APreflightNeedsNoKey) {
  const Folder folder;
  router::RouterConfig config = with_keys(folder, key_line("a", "team"));
  config.cors_origins = {"*"};
  Cluster cluster({FakeWorkerOptions{}}, config);
  http::Headers headers{{"origin", "https://any.example"},
                        {"access-control-request-method", "POST"},
                        {"access-control-request-headers", "authorization,content-type,x-stainless-os"}};
  const auto preflight = cluster.ask(http::ClientRequest("OPTIONS", chat, headers));
  ASSERT_EQ(preflight->status, 204);
  EXPECT_EQ(preflight->headers.find("access-control-allow-origin").value_or(""), "*");
  EXPECT_EQ(preflight->headers.find("access-control-allow-headers").value_or(""),
            "authorization,content-type,x-stainless-os");
  EXPECT_NE(preflight->headers.find("access-control-allow-methods").value_or("").find("POST"), std::string_view::npos);
  const auto without_key = cluster.post(chat, short_chat, {{"origin", "https://any.example"}});
  EXPECT_EQ(without_key->status, 401);
  EXPECT_EQ(without_key->headers.find("access-control-allow-origin").value_or(""), "*");
}

TEST(Cors, OffByDefault) {
  Cluster cluster({FakeWorkerOptions{}});
  http::Headers page{{"origin", "https://app.example"}};
  EXPECT_FALSE(cluster.post(chat, short_chat, page)->headers.find("access-control-allow-origin"));
  EXPECT_EQ(cluster.ask(http::ClientRequest("OPTIONS", chat, page))->status, 405);
}

TEST(PublicTls, ServesOnlyEncrypted) {
  const Folder folder;
  router::RouterConfig config = with_keys(folder, key_line("a", "team"));
  config.tls.cert_file = folder.file("cert");
  config.tls.key_file = folder.file("key");
  http::write_test_certificate(config.tls.cert_file, config.tls.key_file);
  Cluster cluster({FakeWorkerOptions{}}, config);
  EXPECT_FALSE(cluster.post(chat, short_chat, bearer("a"))) << "plain text was answered";
  cluster.client_tls = async::make_tls_client({"", "", config.tls.cert_file.string()}).value();
  const auto answer = cluster.post(chat, short_chat, bearer("a"));
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_EQ(answer->status, 200);
  const auto events = cluster.stream(chat, chat_body(R"(,"stream":true,"max_tokens":5)"), bearer("a"));
  EXPECT_EQ(content(events), "abcde");
  EXPECT_EQ(events.back(), "[DONE]");
}

TEST(PublicTls, OtherAddressesNeedKeysAndTls) {
  router::RouterConfig config;
  config.address = "0.0.0.0";
  const auto problems = [&] {
    config::Problems found;
    config.validate(found);
    return found.list().size();
  };
  EXPECT_EQ(problems(), 1u);
  config.api_keys_file = "keys";
  EXPECT_EQ(problems(), 1u);
  config.tls.cert_file = "cert";
  config.tls.key_file = "key";
  EXPECT_EQ(problems(), 0u);
  config.api_keys_file.clear();
  EXPECT_EQ(problems(), 1u);
  config.insecure_plaintext = true;
  EXPECT_EQ(problems(), 0u);
}

}  // namespace
}  // namespace penstock::test
