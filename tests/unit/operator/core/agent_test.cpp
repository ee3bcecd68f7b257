#include <gtest/gtest.h>

#include <list>

#include "operator/core/agent/node_agent.hpp"
#include "operator/core/agent/source.hpp"
#include "operator/core/agent/transfer.hpp"
#include "tests/unit/operator/core/builders.hpp"

namespace penstock::ctl {
namespace {

using namespace testing;

// --- Where files come from ---

TEST(Source, TakesUrlsApart) {
  const auto plain = parse_address("http://models.example:8080/a/b?x=1#part").value();
  EXPECT_FALSE(plain.encrypted);
  EXPECT_EQ(plain.host, "models.example");
  EXPECT_EQ(plain.port, 8080);
  EXPECT_EQ(plain.target, "/a/b?x=1");
  EXPECT_EQ(parse_address("https://models.example").value().target, "/");
  EXPECT_EQ(parse_address("https://[::1]:99/").value().host, "::1");
  for (const char* bad : {"ftp://a/", "https://", "https://a:0/", "https://a:70000/", "https://u:p@a/", "https://a/b c",
                          "https://a:x/"}) {
    EXPECT_FALSE(parse_address(bad)) << bad;
  }
}

TEST(Source, ARedirectNeverLeavesEncryption) {
  const auto from = parse_address("https://hub.example/a").value();
  EXPECT_EQ(follow(from, "https://cdn.example/x?y").value().host, "cdn.example");
  EXPECT_EQ(follow(from, "/other").value().host, "hub.example");
  EXPECT_FALSE(follow(from, "http://cdn.example/x"));
  EXPECT_FALSE(follow(from, "//cdn.example/x"));
  EXPECT_FALSE(follow(from, ""));
}

TEST(Source, EachSchemeIsFetchedOrRefusedByName) {
  EXPECT_EQ(parse_source("hf://org/model", "").value().revision, "main");
  EXPECT_EQ(parse_source("https://h/m.gguf", "").value().kind, SourceKind::web_file);
  EXPECT_EQ(parse_source("https://h/m/", "").value().kind, SourceKind::web_list);
  EXPECT_EQ(parse_source("file:///data/m", "").value().path, "/data/m");
  for (const char* bad : {"hf://model", "hf://a/b/c", "hf://a/..", "s3://b/k", "gs://b/k", "oci://x", "file://data"}) {
    EXPECT_FALSE(parse_source(bad, "")) << bad;
  }
  EXPECT_NE(parse_source("s3://b/k", "").error().message.find("s3://"), std::string::npos);
}

TEST(Source, NamesThatLeadElsewhereAreRefused) {
  for (const char* good : {"a", "a/b.c", "model-00001-of-00002.safetensors", "with space"}) {
    EXPECT_TRUE(is_safe_name(good)) << good;
  }
  for (const char* bad : {"", "/a", "a/", "a//b", "../a", "a/../b", ".hidden", "a/.git/x", "a\\b", "a\nb"}) {
    EXPECT_FALSE(is_safe_name(bad)) << bad;
  }
}

TEST(Source, ReadsTheListOfAHub) {
  const auto source = parse_source("hf://org/model", "v1").value();
  const std::string sha(64, 'a'), git(40, 'b'), commit(40, 'c');
  const auto answer = json::parse(R"([{"type":"directory","path":"x"},
      {"type":"file","path":".gitattributes","size":3,"oid":")" +
                                  git + R"("},
      {"type":"file","path":"w.safetensors","size":10,"oid":")" +
                                  git + R"(","lfs":{"oid":")" + sha + R"(","size":10}},
      {"type":"file","path":"config.json","size":5,"oid":")" +
                                  git + "\"}]")
                          .value();
  const auto files = parse_hub_tree(answer, source, commit).value();
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(files[0].name, "config.json");
  EXPECT_EQ(files[0].git_sha1, git);
  EXPECT_EQ(files[1].sha256, sha);
  EXPECT_EQ(files[1].target, "/org/model/resolve/" + commit + "/w.safetensors");
  EXPECT_EQ(bytes_of(files), 15u);
  EXPECT_FALSE(parse_hub_tree(json::parse(R"([{"type":"file","path":"a","size":1}])").value(), source, commit));
  EXPECT_FALSE(parse_hub_tree(json::parse(R"({"error":"x"})").value(), source, commit));
  EXPECT_FALSE(parse_hub_tree(json::parse("[]").value(), source, commit));
}

TEST(Source, ReadsSumsAsSha256sumWritesThem) {
  const auto folder = parse_address("https://h/m/").value();
  const std::string a(64, '1'), b(64, '2');
  const auto files = parse_sums(b + "  z.bin\r\n" + a + " *./sub/a.bin\n\n", folder).value();
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(files[0].name, "sub/a.bin");
  EXPECT_EQ(files[0].target, "/m/sub/a.bin");
  for (const std::string& bad :
       {a + " x", std::string("xyz  a"), a + "  ../x", a + "  x\n" + b + "  x", std::string()}) {
    EXPECT_FALSE(parse_sums(bad, folder)) << bad;
  }
}

TEST(Source, TheDigestIsThatOfTheSumsInTheOrderOfNames) {
  SourceFile a{"a", 1, std::string(64, '1'), "", ""}, b{"b", 1, std::string(64, '2'), "", ""};
  EXPECT_EQ(digest_of({b, a}), digest_of({a, b}));
  EXPECT_NE(digest_of({a}), digest_of({a, b}));
  EXPECT_EQ(digest_of({a}).size(), 71u);
}

// --- One file ---

TEST(FileTransfer, AsksForTheRestAndAppendsIt) {
  FileTransfer file(100, 1000, 40);
  EXPECT_EQ(file.range(), "bytes=40-");
  EXPECT_EQ(file.on_head(206, "bytes 40-99/100", "60").value(), TransferStep::append);
  EXPECT_TRUE(file.on_bytes(60));
  EXPECT_TRUE(file.on_end());
  EXPECT_TRUE(file.is_complete());
}

TEST(FileTransfer, AServerThatIgnoresRangesStartsItOver) {
  FileTransfer file(100, 1000, 40);
  EXPECT_EQ(file.on_head(200, std::nullopt, "100").value(), TransferStep::restart);
  EXPECT_EQ(file.have(), 0u);
  EXPECT_TRUE(file.on_bytes(100));
  EXPECT_TRUE(file.on_end());
}

TEST(FileTransfer, AShortBodyIsAskedForAgainFromWhereItEnded) {
  FileTransfer file(100, 1000, 0);
  EXPECT_EQ(file.range(), "");
  ASSERT_TRUE(file.on_head(200, std::nullopt, std::nullopt));
  ASSERT_TRUE(file.on_bytes(30));
  EXPECT_EQ(file.on_end().error().code, ErrorCode::unavailable);
  EXPECT_EQ(file.range(), "bytes=30-");
}

TEST(FileTransfer, WhatCannotBeRightIsDropped) {
  EXPECT_EQ(FileTransfer(100, 1000, 40).on_head(206, "bytes 0-99/100", {}).error().code, ErrorCode::data_loss);
  EXPECT_EQ(FileTransfer(100, 1000, 40).on_head(206, "bytes 40-149/150", {}).error().code, ErrorCode::data_loss);
  EXPECT_EQ(FileTransfer(100, 1000, 40).on_head(206, std::nullopt, {}).error().code, ErrorCode::data_loss);
  EXPECT_EQ(FileTransfer(100, 1000, 40).on_head(416, {}, {}).error().code, ErrorCode::data_loss);
  EXPECT_EQ(FileTransfer(100, 1000, 200).have(), 0u) << "more than the file has";
  FileTransfer more(100, 1000, 0);
  ASSERT_TRUE(more.on_head(200, {}, {}));
  EXPECT_EQ(more.on_bytes(101).error().code, ErrorCode::data_loss);
}

TEST(FileTransfer, NeverTakesMoreThanAllowed) {
  EXPECT_EQ(FileTransfer({}, 50, 0).on_head(200, {}, "51").error().code, ErrorCode::resource_exhausted);
  FileTransfer blind({}, 50, 0);
  ASSERT_TRUE(blind.on_head(200, {}, {}));
  ASSERT_TRUE(blind.on_bytes(50));
  EXPECT_EQ(blind.on_bytes(1).error().code, ErrorCode::resource_exhausted);
}

TEST(FileTransfer, RefusalsSayWhetherToTryAgain) {
  const auto code = [](int status) { return FileTransfer({}, 1, 0).on_head(status, {}, {}).error().code; };
  EXPECT_EQ(code(401), ErrorCode::permission_denied);
  EXPECT_EQ(code(404), ErrorCode::not_found);
  EXPECT_EQ(code(429), ErrorCode::unavailable);
  EXPECT_EQ(code(503), ErrorCode::unavailable);
  EXPECT_EQ(code(418), ErrorCode::invalid_argument);
}

// --- The node ---

class NodeAgentTest : public ::testing::Test {
 protected:
  NodeAgentTest() {
    node.meta.name = node.spec.node_name = "n1";
    node.meta.generation = 1;
    options.reserve_bytes = 10;
    agent = std::make_unique<NodeAgent>(options, 1);
    agent->on_disk(1000, 500);
  }
  api::ModelCache& cache(const std::string& name, std::int64_t size) {
    api::ModelCache& one = caches.emplace_back();
    one.meta.namespace_ = "ns";
    one.meta.name = name;
    one.spec.uri = "https://h/" + name;
    one.spec.size = kube::Quantity::of(size);
    return one;
  }
  void wish(std::vector<std::string> ids, std::int64_t s = 0) {
    node.spec.caches = std::move(ids);
    ++node.meta.generation;
    std::vector<const api::ModelCache*> views;
    for (const auto& one : caches) views.push_back(&one);
    agent->on_wish(&node, views, at(s));
  }
  HeldCopy copy(const std::string& name, std::int64_t bytes, std::int64_t used_s) {
    return {"ns/" + name, "https://h/" + name, "", "sha256:x", bytes, at(used_s)};
  }
  /// "fetch ns/a", "remove ns/b" or "".
  std::string next(std::int64_t s = 0) {
    const auto task = agent->next(at(s));
    if (!task) return "";
    return (task->kind == AgentTask::Kind::fetch ? "fetch " : "remove ") + task->cache;
  }
  std::optional<api::NodeCacheEntry> told(const std::string& id, std::int64_t s) {
    if (const auto status = agent->status_to_write(at(s))) {
      agent->on_written(*status, at(s));
      last = *status;
    }
    for (const auto& entry : last.entries) {
      if (entry.cache == id) return entry;
    }
    return std::nullopt;
  }

  api::NodeModelCache node;
  std::list<api::ModelCache> caches;
  AgentOptions options;
  std::unique_ptr<NodeAgent> agent;
  api::NodeModelCacheStatus last;
};

TEST_F(NodeAgentTest, FetchesWhatIsWishedForOneAtATime) {
  cache("a", 100);
  cache("b", 100);
  EXPECT_EQ(next(), "") << "no wish yet";
  wish({"ns/b", "ns/a"});
  EXPECT_EQ(next(), "fetch ns/a");
  EXPECT_EQ(next(), "");
  agent->on_fetched("sha256:1", 90, at(1));
  EXPECT_EQ(told("ns/a", 1)->state, api::CacheState::ready);
  EXPECT_EQ(told("ns/a", 1)->path, "/var/lib/penstock/models/ns.a");
  EXPECT_EQ(next(1), "fetch ns/b");
  EXPECT_EQ(told("ns/b", 2)->state, api::CacheState::downloading);
}

TEST_F(NodeAgentTest, NothingThatACacheNamesIsRemovedUntilRoomIsNeeded) {
  cache("a", 400);
  cache("old", 80);  // of other nodes by now
  cache("older", 80);
  agent->on_found({copy("old", 80, 1), copy("older", 80, 0)}, {});
  wish({"ns/a"});
  EXPECT_EQ(next(), "fetch ns/a");
}

TEST_F(NodeAgentTest, ACopyWhoseCacheIsDeletedGoesWhenNoPodUsesIt) {
  cache("a", 10);
  agent->on_found({copy("gone", 80, 0)}, {});
  wish({"ns/a", "ns/gone"});
  EXPECT_EQ(next(), "fetch ns/a");
  agent->on_fetched("sha256:1", 10, at(1));
  EXPECT_EQ(next(1), "") << "the wish names it: a pod uses it";
  wish({"ns/a"}, 2);
  EXPECT_EQ(next(2), "remove ns/gone");
  EXPECT_EQ(told("ns/gone", 2)->state, api::CacheState::evicting);
  agent->on_removed(at(3));
  EXPECT_EQ(next(3), "");
  EXPECT_FALSE(told("ns/gone", 3));
}

TEST_F(NodeAgentTest, TheLongestUnusedGoesFirstAndOnlyAsMuchAsIsNeeded) {
  cache("a", 520);
  cache("old", 80);
  cache("older", 80);
  agent->on_found({copy("old", 80, 1), copy("older", 80, 0)}, {});
  wish({"ns/a"});
  EXPECT_EQ(next(), "remove ns/older");
  agent->on_removed(at(0));
  agent->on_disk(1000, 580);
  EXPECT_EQ(next(), "fetch ns/a");
}

TEST_F(NodeAgentTest, UseIsWhatCountsNotWhenItWasFetched) {
  cache("first", 10);
  cache("second", 10);
  agent->on_found({copy("first", 80, 0), copy("second", 80, 5)}, {});
  wish({"ns/first"}, 10);
  cache("big", 520);
  wish({"ns/big"}, 20);  // until now the first was in use
  EXPECT_EQ(next(20), "remove ns/second");
}

TEST_F(NodeAgentTest, WhatIsWishedForIsNeverRemovedForSomethingElse) {
  cache("a", 700);
  cache("held", 80);
  agent->on_found({copy("held", 80, 0), copy("gone", 80, 0)}, {});
  wish({"ns/a", "ns/held", "ns/gone"});  // the cache of "gone" is deleted, but pods still use it
  EXPECT_EQ(next(), "");
  const auto entry = told("ns/a", 1);
  EXPECT_EQ(entry->state, api::CacheState::failed);
  EXPECT_NE(entry->message.find("no room"), std::string::npos);
  EXPECT_EQ(told("ns/gone", 1)->state, api::CacheState::ready);
  EXPECT_EQ(agent->held().size(), 2u);
}

TEST_F(NodeAgentTest, NoneGoesIfAllOfThemWouldNotMakeTheRoom) {
  cache("a", 5000);
  cache("old", 80);
  agent->on_found({copy("old", 80, 1)}, {});
  wish({"ns/a"});
  EXPECT_EQ(next(), "");
}

TEST_F(NodeAgentTest, WhatIsNotEvictableStays) {
  cache("a", 520);
  cache("kept", 80).spec.evictable = false;
  agent->on_found({copy("kept", 80, 0)}, {});
  wish({"ns/a"});
  EXPECT_EQ(next(), "");
}

TEST_F(NodeAgentTest, TheBudgetIsALimitOfItsOwn) {
  options.budget_bytes = 150;
  agent = std::make_unique<NodeAgent>(options, 1);
  agent->on_disk(1000, 900);
  cache("a", 100);
  cache("old", 80);
  agent->on_found({copy("old", 80, 0)}, {});
  wish({"ns/a"});
  EXPECT_EQ(next(), "remove ns/old");
}

TEST_F(NodeAgentTest, ACacheOfTheSameNameWithAnotherUriIsFetchedAnew) {
  cache("a", 100).spec.uri = "https://other/a";
  agent->on_found({copy("a", 80, 0)}, {});
  wish({"ns/a"});
  EXPECT_EQ(next(), "remove ns/a");
  EXPECT_EQ(told("ns/a", 0)->state, api::CacheState::evicting);
  agent->on_removed(at(1));
  EXPECT_EQ(next(1), "fetch ns/a");
}

TEST_F(NodeAgentTest, AWishThatWentMeanwhileEndsTheFetch) {
  cache("a", 100);
  wish({"ns/a"});
  next();
  EXPECT_FALSE(agent->is_superseded());
  agent->on_progress(30, 100);
  wish({}, 1);
  EXPECT_TRUE(agent->is_superseded());
  agent->on_failed(make_error(ErrorCode::aborted, ""), at(2));
  EXPECT_EQ(next(2), "remove ns/a") << "what was begun is of no use";
  agent->on_removed(at(3));
  EXPECT_EQ(next(3), "");
}

TEST_F(NodeAgentTest, FailuresBackOffAndSayWhen) {
  cache("a", 100);
  wish({"ns/a"});
  ASSERT_EQ(next(0), "fetch ns/a");
  agent->on_failed(make_error(ErrorCode::unavailable, "the source is away"), at(0));
  EXPECT_EQ(next(5), "");
  EXPECT_EQ(told("ns/a", 5)->state, api::CacheState::failed);
  EXPECT_NE(told("ns/a", 5)->message.find("the source is away"), std::string::npos);
  ASSERT_EQ(next(13), "fetch ns/a") << "at most a quarter more than ten seconds";
  agent->on_failed(make_error(ErrorCode::unavailable, "away"), at(13));
  EXPECT_EQ(next(13 + 19), "");
  ASSERT_EQ(next(13 + 26), "fetch ns/a");
  agent->on_failed(make_error(ErrorCode::not_found, "404"), at(100));
  EXPECT_EQ(next(100 + 500), "") << "a refusal isn't asked about every few seconds";
  EXPECT_EQ(next(100 + 800), "fetch ns/a");
}

TEST_F(NodeAgentTest, WhatWasBegunCountsAsRoomThatIsThereAlready) {
  cache("a", 600);
  agent->on_found({}, {{"ns/a", 300}});
  wish({"ns/a"});
  EXPECT_EQ(next(), "fetch ns/a") << "300 more fit into 490";
}

TEST_F(NodeAgentTest, AnotherPathThanTheAgentsIsSaidAndNotTried) {
  cache("a", 100).spec.storage.host_path = api::HostPathStorage{"/elsewhere"};
  cache("b", 100).spec.credentials_secret_ref = api::NameRef{"token"};
  wish({"ns/a", "ns/b"});
  EXPECT_EQ(next(), "");
  EXPECT_NE(told("ns/a", 0)->message.find("/elsewhere"), std::string::npos);
  EXPECT_NE(told("ns/b", 0)->message.find("credentialsSecretRef"), std::string::npos);
  options.token_secret = "token";
  agent = std::make_unique<NodeAgent>(options, 1);
  agent->on_disk(1000, 500);
  wish({"ns/a", "ns/b"});
  EXPECT_EQ(next(), "fetch ns/b") << "that one it has";
}

TEST_F(NodeAgentTest, BytesAreToldEveryFewSecondsAndStatesAtOnce) {
  cache("a", 100);
  wish({"ns/a"});
  next(0);
  int writes = 0;
  for (int s = 0; s < 60; ++s) {
    agent->on_progress(s, 100);
    agent->on_disk(1000, 500 - s);
    if (const auto status = agent->status_to_write(at(s))) {
      agent->on_written(*status, at(s));
      ++writes;
    }
  }
  EXPECT_LE(writes, 60 / 5 + 2);
  EXPECT_GE(writes, 60 / 5);
  agent->on_fetched("sha256:1", 100, at(60));
  EXPECT_EQ(told("ns/a", 60)->state, api::CacheState::ready);
  for (int s = 61; s < 600; ++s) {
    agent->on_disk(1000, s);
    EXPECT_FALSE(agent->status_to_write(at(s))) << "at rest nothing is written";
  }
}

TEST_F(NodeAgentTest, AStatusThatWasNotTakenIsWrittenAgain) {
  cache("a", 100);
  wish({"ns/a"});
  ASSERT_TRUE(agent->status_to_write(at(0)));
  agent->on_write_failed();
  EXPECT_TRUE(agent->status_to_write(at(0)));
}

TEST_F(NodeAgentTest, ANodeWithoutAnObjectDoesNothing) {
  cache("a", 100);
  agent->on_found({copy("old", 80, 1)}, {});
  agent->on_wish(nullptr, {&caches.front()}, at(0));
  EXPECT_EQ(next(), "");
  EXPECT_FALSE(agent->status_to_write(at(0)));
}

}  // namespace
}  // namespace penstock::ctl
