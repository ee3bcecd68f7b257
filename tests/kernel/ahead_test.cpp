// Steps that start before the last one's tokens are known: the same streams as one step at a time, whatever is asked.
#include <map>

#include "tests/kernel/model_world.hpp"
#include "worker/engine/engine_core.hpp"
#include "worker/engine/prefix_hasher.hpp"
#include "worker/executor/cuda/cuda_executor.hpp"

namespace penstock::worker {
namespace {

using kernels::cuda::test::must;

/// Takes one step at a time, or as many as the whole one, and counts those that were behind another.
class Counting final : public Executor {
 public:
  Counting(Executor& whole, std::uint32_t steps) : whole_(whole), steps_(steps) {}
  const ExecutorLimits& limits() const override { return whole_.limits(); }
  KvPoolView kv_pool() override { return whole_.kv_pool(); }
  void launch(const StepBatch& batch) override {
    ahead += batch.sequences.front().follows ? 1 : 0;
    whole_.launch(batch);
  }
  Result<StepResult> collect() override { return whole_.collect(); }
  std::uint32_t steps_in_flight_max() const override { return std::min(steps_, whole_.steps_in_flight_max()); }
  std::uint32_t ahead = 0;

 private:
  Executor& whole_;
  std::uint32_t steps_;
};

struct Stream {
  std::vector<TokenId> tokens;
  std::vector<float> logprobs;
  bool operator==(const Stream&) const = default;
};

class Streams final : public EngineSink {
 public:
  void on_step(protocol::Step step) override {
    for (const auto& choice : step.choices) {
      Stream& stream = all[choice.request.low];
      stream.tokens.insert(stream.tokens.end(), choice.tokens.begin(), choice.tokens.end());
      for (const auto& position : choice.logprobs) stream.logprobs.push_back(position.chosen.logprob);
    }
  }
  void on_request_error(protocol::RequestError error) override { ADD_FAILURE() << error.error.message; }
  void on_transfer_status(protocol::TransferStatus) override {}
  void on_cache_events(protocol::CacheEvents) override {}
  void on_snapshot(std::uint64_t, std::vector<protocol::Snapshot>) override {}
  void on_load(const protocol::Load&) override {}
  void on_drained() override { is_drained = true; }
  void on_broken(const Error& error) override { ADD_FAILURE() << error.message; }
  std::map<std::uint64_t, Stream> all;
  bool is_drained = false;
};

protocol::Generate request_of(std::uint64_t id, std::uint32_t vocabulary, std::uint32_t tokens) {
  protocol::Generate generate;
  generate.spec.request = {1, id};
  for (std::uint64_t i = 0; i < 9 + 11 * id; ++i) {
    generate.spec.prompt.push_back(static_cast<TokenId>((17 + 7919 * i + 131 * id) % vocabulary));
  }
  generate.spec.choices.push_back({0, {}});
  generate.spec.sampling.temperature = 0;
  generate.spec.sampling.tokens_max = tokens;
  generate.spec.sampling.ignore_eos = true;
  return generate;
}

class AheadTest : public test::ModelWorld {
 protected:
  struct Run {
    std::map<std::uint64_t, Stream> streams;
    std::uint32_t ahead = 0;
  };
  static Run run(Executor& executor, std::uint32_t in_flight, const std::vector<protocol::Generate>& requests) {
    Counting counting(executor, in_flight);
    Streams sink;
    SteadyClock clock;
    const EngineConfig config;
    const BlakePrefixHasher hasher(config, executor.kv_pool().geometry.block_tokens);
    EngineCore core(config, counting, nullptr, sink, clock, nullptr, hasher, in_flight);
    for (const auto& request : requests) core.handle(request);
    core.handle(DrainEngine{});
    const TimePoint last = clock.now() + std::chrono::seconds(20);
    while (!sink.is_drained && clock.now() < last) EXPECT_TRUE(core.step().has_value());
    EXPECT_TRUE(sink.is_drained);
    EXPECT_EQ(core.scheduler().cache().available(), executor.kv_pool().blocks);
    return {sink.all, counting.ahead};
  }
};

TEST_F(AheadTest, StreamsAreThoseOfOneStepAtATime) {
  const auto tiny = test::tiny("qwen3", 128);
  const auto model = load(tiny);
  for (const CudaLaunch launch : {CudaLaunch::graph, CudaLaunch::direct}) {
    CudaExecutorOptions options;
    options.kv_blocks = 400;
    options.launch = launch;
    const auto executor = must(make_cuda_executor(model, options));
    ASSERT_EQ(executor->steps_in_flight_max(), 2u);
    for (const std::uint32_t count : {1u, 5u, 24u}) {
      std::vector<protocol::Generate> requests;
      for (std::uint64_t id = 0; id < count; ++id) {
        auto request = request_of(id, tiny.vocabulary, 20 + static_cast<std::uint32_t>(id));
        if (id % 3 == 1) request.spec.sampling.temperature = 0.8f;
        if (id % 3 == 2) request.spec.sampling.logprobs = 2;
        requests.push_back(std::move(request));
      }
      const Run one = run(*executor, 1, requests), two = run(*executor, 2, requests);
      EXPECT_EQ(one.ahead, 0u);
      EXPECT_GT(two.ahead, 15u);
      for (std::uint64_t id = 0; id < count; ++id) {
        EXPECT_EQ(two.streams.at(id).tokens.size(), 20 + id);
        EXPECT_TRUE(one.streams.at(id) == two.streams.at(id)) << "request " << id << " of " << count;
      }
    }
  }
}

TEST_F(AheadTest, AStopIdAtAnyPlaceEndsTheStreamThereAndLeavesTheNextOneAlone) {
  const auto tiny = test::tiny("llama", 64);
  const auto model = load(tiny);
  CudaExecutorOptions options;
  options.kv_blocks = 60;
  const auto executor = must(make_cuda_executor(model, options));
  const auto whole = request_of(1, tiny.vocabulary, 24);
  const std::vector<TokenId> tokens = run(*executor, 1, {whole}).streams.at(1).tokens;
  for (std::size_t at = 0; at < tokens.size(); ++at) {
    auto request = whole;
    request.spec.sampling.stop_token_ids = {tokens[at]};
    const auto first = std::find(tokens.begin(), tokens.end(), tokens[at]);
    const std::vector<TokenId> expected(tokens.begin(), first + 1);
    EXPECT_EQ(run(*executor, 2, {request}).streams.at(1).tokens, expected) << at;
    EXPECT_EQ(run(*executor, 2, {whole}).streams.at(1).tokens, tokens) << "after an end at " << at;
  }
}

TEST_F(AheadTest, PenaltiesAndBiasesGiveTheSameStreamsToo) {
  const auto tiny = test::tiny("llama", 128);
  const auto model = load(tiny);
  CudaExecutorOptions options;
  options.kv_blocks = 200;
  const auto executor = must(make_cuda_executor(model, options));
  auto plain = request_of(1, tiny.vocabulary, 24), penalised = request_of(2, tiny.vocabulary, 16);
  penalised.spec.sampling.frequency_penalty = 0.7f;
  penalised.spec.sampling.logit_bias = {{5, 2.0f}};
  const Run one = run(*executor, 1, {plain, penalised}), two = run(*executor, 2, {plain, penalised});
  EXPECT_TRUE(one.streams == two.streams);
  EXPECT_GT(two.ahead, 0u) << "once the other one has ended";
}

}  // namespace
}  // namespace penstock::worker
