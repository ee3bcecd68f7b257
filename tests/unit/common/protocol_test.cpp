#include <gtest/gtest.h>

#include <limits>

#include "common/protocol/codec.hpp"
#include "common/time/random.hpp"

namespace penstock::protocol {
namespace {

GenerateSpec full_spec() {
  GenerateSpec spec;
  spec.request = {1, 2};
  spec.attempt = 3;
  spec.prompt = {0, 49151, 7};
  spec.choices = {{0, {}}, {4, {9, 8}}};
  spec.sampling.temperature = 0.0f;
  spec.sampling.top_k = 5;
  spec.sampling.top_p = 0.25f;
  spec.sampling.seed = ~0ull;
  spec.sampling.logit_bias = {{3, -100.0f}};
  spec.sampling.stop_token_ids = {11};
  spec.sampling.tokens_max = 64;
  spec.sampling.logprobs = 0;
  spec.cache_salt = std::string("\x00\xff", 2);
  spec.priority = -2;
  spec.deadline = std::chrono::seconds(30);
  spec.trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  return spec;
}

Result<RouterMessage> decoded_as(const RouterMessage&, const EncodedMessage& encoded) {
  return decode_router_message(encoded.type, encoded.body);
}
Result<WorkerMessage> decoded_as(const WorkerMessage&, const EncodedMessage& encoded) {
  return decode_worker_message(encoded.type, encoded.body);
}

template <class Message>
void expect_round_trip(const Message& message) {
  const auto encoded = encode(message);
  const auto decoded = decoded_as(message, encoded);
  ASSERT_TRUE(decoded) << decoded.error().message;
  EXPECT_TRUE(*decoded == message) << "type " << encoded.type;
}

TEST(Codec, RouterMessagesRoundTrip) {
  const TransferRoute route{{5, 6}, 7, {8, 9}, "127.0.0.1:7001", std::string("\x01\x00", 2)};
  expect_round_trip(RouterMessage(Hello{1, "r", "m", {1, 2, 3}}));
  expect_round_trip(RouterMessage(Generate{full_spec()}));
  expect_round_trip(RouterMessage(Prefill{full_spec(), route}));
  expect_round_trip(RouterMessage(Expect{full_spec(), route}));
  expect_round_trip(RouterMessage(Reoffer{{1, 2}, route}));
  expect_round_trip(RouterMessage(Release{{1, 2}, {3, 4}, 5}));
  expect_round_trip(RouterMessage(Abort{{1, 2}, 0u, 4, "client gone"}));
  expect_round_trip(RouterMessage(Abort{{1, 2}, std::nullopt, 0, ""}));
  expect_round_trip(RouterMessage(SnapshotRequest{}));
  expect_round_trip(RouterMessage(GetBlob{"ab"}));
  expect_round_trip(RouterMessage(Drain{std::chrono::seconds(1)}));
  expect_round_trip(RouterMessage(Ping{~0ull}));
}

TEST(Codec, WorkerMessagesRoundTrip) {
  Welcome welcome;
  welcome.instance = {1, 1};
  welcome.epoch = 9;
  welcome.role = Role::decode;
  welcome.card.name = "tiny";
  welcome.card.bos_token = 0;
  welcome.card.eos_tokens = {2, 3};
  welcome.card.default_top_p = 0.9f;
  welcome.kv_dtype = "bf16";
  welcome.hash_probe = {{1, 2}, {3, 4}};
  welcome.topology = {{"rack", "a"}};
  expect_round_trip(WorkerMessage(welcome));
  expect_round_trip(WorkerMessage(Blob{"d", 4, 9, std::string("\0x", 2)}));
  ChoiceStep step;
  step.request = {1, 2};
  step.position = 3;
  step.tokens = {1, 2};
  step.logprobs = {{{1, -0.5f}, 1, {{1, -0.5f}, {2, -2.0f}}}, {{2, -1.0f}, 2, {}}};
  step.finish = FinishReason::stop;
  step.usage = Usage{10, 4, 2};
  step.prompt_logprobs = {{{5, -3.0f}, 7, {}}};
  expect_round_trip(WorkerMessage(Step{{step, ChoiceStep{}}, {}}));
  expect_round_trip(WorkerMessage(Step{{}, {{{1, 2}, 3, 4096}, {{5, 6}, 0, 0}}}));
  expect_round_trip(WorkerMessage(CacheEvents{
      1, 2, {BlockStored{3, {4, 5}, {{6, 7}, {8, 9}}}, BlockRemoved{{{1, 1}}}, BlockRemoved{}, AllBlocksCleared{}}}));
  expect_round_trip(WorkerMessage(Snapshot{1, 2, 3, true, {BlockStored{0, {}, {{6, 7}}}}}));
  expect_round_trip(WorkerMessage(Load{1, 2, 3, 4, 5, 6, 7, 8.0f, 0.5f, true, 9}));
  expect_round_trip(
      WorkerMessage(RequestError{{1, 2}, 3, {ErrorCode::resource_exhausted, "full"}, std::chrono::seconds(2)}));
  expect_round_trip(WorkerMessage(TransferStatus{{1, 2}, {3, 4}, 5, "expired", "late", 6}));
  expect_round_trip(WorkerMessage(Goodbye{"drain"}));
  expect_round_trip(WorkerMessage(Pong{3}));
  expect_round_trip(WorkerMessage(ProtocolError{{ErrorCode::unsupported, "version"}}));
}

TEST(Codec, RefusesUnknownTypesAndTheOtherDirection) {
  EXPECT_FALSE(decode_router_message(999, ""));
  EXPECT_FALSE(decode_router_message(102, ""));
  EXPECT_FALSE(decode_worker_message(1, ""));
}

TEST(Codec, RefusesIdsOfWrongSize) {
  // Field 1 (request) with one byte only.
  const auto decoded = decode_router_message(7, std::string("\x0a\x01x", 3));
  ASSERT_FALSE(decoded);
  EXPECT_EQ(decoded.error().code, ErrorCode::invalid_argument);
}

TEST(Codec, RefusesATraceThatIsTooLong) {
  Generate generate{full_spec()};
  generate.spec.trace.assign(65, 'a');
  const auto encoded = encode(RouterMessage(generate));
  EXPECT_FALSE(decode_router_message(encoded.type, encoded.body));
}

TEST(Codec, SurvivesEveryTruncationAndSeededFlips) {
  const auto encoded = encode(RouterMessage(Prefill{full_spec(), {{5, 6}, 7, {8, 9}, "h:1", "t"}}));
  for (std::size_t length = 0; length < encoded.body.size(); ++length) {
    (void)decode_router_message(encoded.type, std::string_view(encoded.body).substr(0, length));
  }
  Random random(7);
  for (int round = 0; round < 20000; ++round) {
    std::string body = encoded.body;
    for (int flip = 0; flip < 3; ++flip) body[random.below(body.size())] = static_cast<char>(random.below(256));
    const auto decoded = decode_router_message(encoded.type, body);
    if (decoded) {  // whatever was accepted must encode again
      EXPECT_FALSE(encode(*decoded).body.empty());
    }
  }
}

}  // namespace
}  // namespace penstock::protocol
