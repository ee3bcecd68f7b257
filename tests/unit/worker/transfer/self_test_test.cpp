// The transport self-test's judgement, on a transport whose reads take the time that the test says.
#include "worker/transfer/self_test.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "worker/transfer/loopback/loopback_transport.hpp"

namespace penstock::worker::transfer::test {
namespace {

using std::chrono::milliseconds;

/// Each read moves the clock: the first one by the first duration, and so on. A cut read leaves its last byte out.
class TimedTransport final : public KvTransport {
 public:
  TimedTransport(LoopbackNetwork& network, ManualClock& clock, std::vector<Duration> durations)
      : inner_(network), clock_(clock), durations_(std::move(durations)) {}
  void cut_reads() { bytes_cut_ = 1; }

  std::string_view name() const override { return "timed"; }
  Result<void> register_pool(const PoolMemory& pool) override { return inner_.register_pool(pool); }
  Result<base::Bytes> local_address() override { return inner_.local_address(); }
  Result<void> connect(EndpointId endpoint, base::BytesView peer) override { return inner_.connect(endpoint, peer); }
  Result<void> send(EndpointId endpoint, base::BytesView message) override { return inner_.send(endpoint, message); }
  Result<void> post_read(EndpointId endpoint, ReadId read, std::span<const ReadRun> runs) override {
    clock_.advance(durations_.at(reads_++));
    ReadRun run = runs.front();
    run.bytes -= bytes_cut_;
    return inner_.post_read(endpoint, read, {&run, 1});
  }
  void force_close(EndpointId endpoint) override { inner_.force_close(endpoint); }
  std::size_t progress(KvTransportEvents& events) override { return inner_.progress(events); }
  KvLane lane(EndpointId) const override { return KvLane::messages; }
  std::string describe() const override { return inner_.describe(); }

 private:
  LoopbackTransport inner_;
  ManualClock& clock_;
  std::vector<Duration> durations_;
  std::size_t reads_ = 0;
  std::uint64_t bytes_cut_ = 0;
};

class TransportSelfTest : public testing::Test {
 protected:
  static constexpr std::uint64_t bytes = 100'000;

  /// The floor is 1 MB/s, so a read of 100 ms just reaches it.
  Result<SelfTestReport> run(std::vector<Duration> durations, std::uint64_t bytes_cut = 0) {
    auto reader = std::make_unique<TimedTransport>(network_, clock_, std::move(durations));
    if (bytes_cut > 0) reader->cut_reads();
    SelfTestOptions options;
    options.bytes = bytes;
    options.bytes_per_second_min = 1e6;
    options.tries_max = 4;
    return run_self_test(std::make_unique<LoopbackTransport>(network_), std::move(reader), options, clock_);
  }

  LoopbackNetwork network_;
  ManualClock clock_;
};

TEST_F(TransportSelfTest, AFastLaneIsTriedOnceAfterItIsWarm) {
  const auto report = run({milliseconds(5000), milliseconds(50)});
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->tries, 1u);
  EXPECT_DOUBLE_EQ(report->bytes_per_second, 2e6);
  EXPECT_EQ(report->lane, KvLane::messages);
}

TEST_F(TransportSelfTest, SlowReadsOnABusyMachineAreTriedAgain) {
  const auto report = run({milliseconds(400), milliseconds(800), milliseconds(700), milliseconds(80)});
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->tries, 3u);
  EXPECT_DOUBLE_EQ(report->bytes_per_second, 1.25e6);
}

TEST_F(TransportSelfTest, ASlowLaneIsReportedByItsBestTryAfterABoundedNumber) {
  const auto report =
      run({milliseconds(400), milliseconds(800), milliseconds(400), milliseconds(500), milliseconds(900)});
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->tries, 4u);
  EXPECT_DOUBLE_EQ(report->bytes_per_second, 0.25e6);
}

TEST_F(TransportSelfTest, ALaneThatNeedsAllTheTimeIsJudgedByTheTriesThatEnded) {
  const auto report = run({milliseconds(400), milliseconds(8000), milliseconds(30'000)});
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->tries, 1u);
  EXPECT_FALSE(run({milliseconds(400), milliseconds(30'000)}));
}

TEST_F(TransportSelfTest, WrongBytesAreNeverForgivenByAnotherTry) {
  const auto report = run({milliseconds(10), milliseconds(10)}, 1);
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code, ErrorCode::data_loss);
}

}  // namespace
}  // namespace penstock::worker::transfer::test
