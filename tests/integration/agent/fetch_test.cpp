// Fetches from a real socket to a real disk: resume, faults of the source and of the disk, a restart in the middle.
#include "operator/agent/fetch.hpp"

#include <gtest/gtest.h>

#include "common/digest/digest.hpp"
#include "tests/integration/agent/files_server.hpp"
#include "tests/integration/kube/api_server.hpp"

namespace penstock::ctl {
namespace {

using digest::sha256_hex;

class FetchTest : public testing::Test {
 protected:
  FetchTest() : web(io), big(3'000'000, 'x') {
    for (std::size_t i = 0; i < big.size(); i += 97) big[i] = static_cast<char>('a' + i % 23);
    task.cache = "ns/m";
    task.bytes_max = 10'000'000;
    options.stall = std::chrono::seconds(5);
    options.tries_max = 2;
  }

  /// A folder of two files and their sums.
  void serve_folder() {
    web.files["/m/big.bin"] = big;
    web.files["/m/sub/small.txt"] = "small";
    web.files["/m/SHA256SUMS"] = sums();
    task.uri = web.url("/m/");
  }
  std::string sums() const { return sha256_hex(big) + "  big.bin\n" + sha256_hex("small") + "  sub/small.txt\n"; }

  Result<HeldCopy> run() { return run_on(disk); }
  Result<HeldCopy> run_on(const Disk& on) {
    std::optional<Result<HeldCopy>> result;
    kube::run(io, [](FetchTest& self, const Disk& target, auto& out) -> boost::asio::awaitable<void> {
      out = co_await fetch(self.task, target, self.options, self.progress);
    }(*this, on, result));
    return result ? *result : Result<HeldCopy>(make_error(ErrorCode::internal, "no end"));
  }
  ErrorCode failure() {
    const auto result = run();
    EXPECT_FALSE(result);
    return result ? ErrorCode::internal : result.error().code;
  }

  boost::asio::io_context io;
  FilesServer web;
  std::string big;
  TemporaryFolder folder;
  Disk disk{folder.path(), 0};
  AgentTask task;
  FetchOptions options;
  FetchProgress progress;
};

TEST_F(FetchTest, AFolderArrivesWholeUnderItsName) {
  serve_folder();
  const auto copy = run();
  ASSERT_TRUE(copy) << copy.error().message;
  EXPECT_EQ(copy->digest, "sha256:" + sha256_hex(sums()));
  EXPECT_EQ(copy->bytes, std::int64_t(big.size() + 5));
  EXPECT_EQ(folder.read("ns.m/big.bin"), big);
  EXPECT_EQ(folder.read("ns.m/sub/small.txt"), "small");
  EXPECT_FALSE(folder.has(".ns.m.partial"));
  EXPECT_EQ(progress.bytes_done, copy->bytes);
  const auto found = disk.copies();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].uri, task.uri);
  EXPECT_EQ(found[0].digest, copy->digest);
}

TEST_F(FetchTest, WhatBreaksOffIsResumedWhereItEnded) {
  serve_folder();
  web.faults["/m/big.bin"] = {{0, 1'000'000, {}, false}, {0, 500'000, {}, false}};
  ASSERT_TRUE(run());
  EXPECT_EQ(folder.read("ns.m/big.bin"), big);
  EXPECT_EQ(web.ranges_of("/m/big.bin"), (std::vector<std::string>{"", "bytes=1000000-", "bytes=1500000-"}));
}

TEST_F(FetchTest, ARestartInTheMiddleGoesOnFromTheDisk) {
  serve_folder();
  options.tries_max = 1;
  web.faults["/m/big.bin"] = {{0, 1'000'000, {}, false}, {503, {}, {}, false}};
  EXPECT_EQ(failure(), ErrorCode::unavailable);
  EXPECT_EQ(disk.begun().at("ns/m"), 1'000'000);
  EXPECT_TRUE(disk.copies().empty());
  ASSERT_TRUE(run());
  EXPECT_EQ(folder.read("ns.m/big.bin"), big);
  EXPECT_EQ(web.ranges_of("/m/big.bin").back(), "bytes=1000000-");
}

TEST_F(FetchTest, AServerThatIgnoresRangesStartsTheFileOver) {
  serve_folder();
  web.faults["/m/big.bin"] = {{0, 1'000'000, {}, false}, {0, {}, {}, true}};
  ASSERT_TRUE(run());
  EXPECT_EQ(folder.read("ns.m/big.bin"), big);
}

TEST_F(FetchTest, AWrongDigestNeverBecomesACopy) {
  serve_folder();
  web.files["/m/big.bin"][17] ^= 1;
  EXPECT_EQ(failure(), ErrorCode::data_loss);
  EXPECT_FALSE(folder.has("ns.m"));
  web.files["/m/big.bin"] = big;
  ASSERT_TRUE(run()) << "and nothing of it is resumed";
  EXPECT_EQ(folder.read("ns.m/big.bin"), big);
}

TEST_F(FetchTest, WhatIsOnTheDiskIsCheckedLikeWhatComes) {
  serve_folder();
  folder.write(".ns.m.partial/big.bin", std::string(1'000'000, '?'));
  EXPECT_EQ(failure(), ErrorCode::data_loss);
  ASSERT_TRUE(run());
  EXPECT_EQ(folder.read("ns.m/big.bin"), big);
}

TEST_F(FetchTest, AnotherListThanSpecDigestSaysIsRefused) {
  serve_folder();
  task.digest = "sha256:" + std::string(64, '0');
  EXPECT_EQ(failure(), ErrorCode::data_loss);
  EXPECT_FALSE(folder.has("ns.m"));
  EXPECT_FALSE(folder.has(".ns.m.partial"));
  task.digest = "sha256:" + sha256_hex(sums());
  EXPECT_TRUE(run());
}

TEST_F(FetchTest, MoreThanSpecSizeIsRefusedBeforeOrWhileItComes) {
  task.bytes_max = 1000;
  web.files["/one.gguf"] = big;
  task.uri = web.url("/one.gguf");
  EXPECT_EQ(failure(), ErrorCode::resource_exhausted);
  web.faults["/one.gguf"] = {{0, 2'000'000, {}, false}};  // chunked: nobody says how much
  EXPECT_EQ(failure(), ErrorCode::resource_exhausted);
  EXPECT_FALSE(folder.has("ns.m"));
}

TEST_F(FetchTest, AFullDiskIsSaidAndLeavesRoomForTheNode) {
  serve_folder();
  const Disk full(folder.path(), std::int64_t{1} << 60);
  const auto result = run_on(full);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::resource_exhausted);
  EXPECT_NE(result.error().message.find("disk is full"), std::string::npos);
}

TEST_F(FetchTest, ASingleFileWithoutADigestIsNeverPatchedTogether) {
  web.files["/one.gguf"] = big;
  task.uri = web.url("/one.gguf");
  folder.write(".ns.m.partial/one.gguf", "half of another version");
  ASSERT_TRUE(run());
  EXPECT_EQ(folder.read("ns.m/one.gguf"), big);
  EXPECT_EQ(web.ranges_of("/one.gguf"), (std::vector<std::string>{""}));
}

TEST_F(FetchTest, AHubIsAskedForACommitAndItsTokenStaysWithIt) {
  const std::string commit(40, 'c');
  FilesServer cdn(io);
  cdn.files["/blob"] = big;
  web.files["/api/models/org/model/revision/v1"] = R"({"sha":")" + commit + "\"}";
  web.files["/api/models/org/model/tree/" + commit] =
      R"([{"type":"file","path":"w.bin","size":)" + std::to_string(big.size()) + R"(,"oid":")" + std::string(40, '0') +
      R"(","lfs":{"oid":")" + sha256_hex(big) + R"("}},
         {"type":"file","path":"config.json","size":2,"oid":"9e26dfeeb6e641a33dae4961196235bdb965b21b"}])";
  web.files["/org/model/resolve/" + commit + "/config.json"] = "{}";
  web.files["/org/model/resolve/" + commit + "/w.bin"] = "";
  web.faults["/org/model/resolve/" + commit + "/w.bin"] = {{0, {}, cdn.url("/blob"), false}};
  options.hub = web.url("");
  options.token = "secret";
  task.uri = "hf://org/model";
  task.revision = "v1";
  const auto copy = run();
  ASSERT_TRUE(copy) << copy.error().message;
  EXPECT_EQ(folder.read("ns.m/w.bin"), big);
  for (const auto& request : web.seen) EXPECT_EQ(request.headers.find("authorization"), "Bearer secret");
  ASSERT_EQ(cdn.seen.size(), 1u);
  EXPECT_FALSE(cdn.seen[0].headers.find("authorization"));
  web.files["/org/model/resolve/" + commit + "/config.json"] = "[]";
  ASSERT_TRUE(disk.remove("ns/m"));
  web.faults["/org/model/resolve/" + commit + "/w.bin"] = {{0, {}, cdn.url("/blob"), false}};
  EXPECT_EQ(failure(), ErrorCode::data_loss) << "git's digest of a small file counts too";
}

TEST_F(FetchTest, RefusalsAreToldApart) {
  task.uri = web.url("/m/");
  EXPECT_EQ(failure(), ErrorCode::not_found);
  serve_folder();
  web.faults["/m/SHA256SUMS"] = {{403, {}, {}, false}};
  EXPECT_EQ(failure(), ErrorCode::permission_denied);
  web.files["/m/SHA256SUMS"] = sha256_hex(big) + "  ../../etc/passwd\n";
  EXPECT_EQ(failure(), ErrorCode::invalid_argument);
}

TEST_F(FetchTest, RedirectsInCirclesEnd) {
  serve_folder();
  for (int i = 0; i < 10; ++i) web.faults["/m/SHA256SUMS"].push_back({0, {}, "/m/SHA256SUMS", false});
  EXPECT_EQ(failure(), ErrorCode::invalid_argument);
}

TEST_F(FetchTest, ACancelledFetchStopsAndKeepsWhatItHas) {
  serve_folder();
  progress.is_cancelled = true;
  EXPECT_EQ(failure(), ErrorCode::aborted);
  EXPECT_FALSE(folder.has("ns.m"));
}

TEST_F(FetchTest, AFolderOfTheNodeIsCopiedFromBelowTheRootOnly) {
  TemporaryFolder source;
  source.write("m/a.bin", big);
  source.write("m/sub/b.txt", "b");
  source.write("secret", "s");
  std::filesystem::create_symlink(source.path() + "/secret", source.path() + "/m/link");
  task.uri = "file://" + source.path() + "/m";
  EXPECT_EQ(failure(), ErrorCode::permission_denied) << "no root was given";
  options.file_root = source.path() + "/m";
  ASSERT_TRUE(run());
  EXPECT_EQ(folder.read("ns.m/a.bin"), big);
  EXPECT_FALSE(folder.has("ns.m/link"));
  task.cache = "ns/other";
  task.uri = "file://" + source.path() + "/m/../secret";
  EXPECT_EQ(failure(), ErrorCode::permission_denied);
}

TEST_F(FetchTest, FilesThatTheSourceNoLongerListsGo) {
  serve_folder();
  folder.write(".ns.m.partial/old.bin", "of a list before");
  ASSERT_TRUE(run());
  EXPECT_FALSE(folder.has("ns.m/old.bin"));
}

TEST_F(FetchTest, OnlyOwnFoldersAreCopiesAndRemovalTakesBoth) {
  serve_folder();
  ASSERT_TRUE(run());
  folder.write("lost+found/x", "x");
  folder.write("ns.fake/.penstock-cache.json", R"({"cache":"ns/m","uri":"u"})");
  folder.write(".ns.m.partial/x", "x");
  EXPECT_EQ(disk.copies().size(), 1u);
  ASSERT_TRUE(disk.remove("ns/m"));
  EXPECT_TRUE(disk.copies().empty());
  EXPECT_TRUE(disk.begun().empty());
  EXPECT_TRUE(folder.has("lost+found/x"));
}

}  // namespace
}  // namespace penstock::ctl
