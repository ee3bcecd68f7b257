// Two real processes over UCX: shared memory and forced TCP, a killed and a stopped prefill worker.
#include <gtest/gtest.h>

#include "tests/integration/transfer/authority.hpp"
#include "tests/integration/transfer/peer_process.hpp"

namespace penstock::worker::transfer::test {
namespace {

struct Lane {
  const char* name;
  const char* tls;
  UcxBulk bulk;
  const char* lane;
};

class TwoProcesses : public testing::TestWithParam<Lane> {
 protected:
  static UcxOptions ucx() { return {GetParam().tls, "", GetParam().bulk}; }
};

TEST_P(TwoProcesses, BytesArriveAndAreValidated) {
  ProcessPair pair(ucx(), 64);
  for (std::uint32_t blocks : {1u, 7u, 64u}) {
    const auto outcome = pair.transfer(blocks);
    ASSERT_TRUE(outcome.complete) << outcome.error;
    EXPECT_EQ(outcome.bytes, blocks * process_block_bytes);
    EXPECT_TRUE(pair.bytes_are_right(blocks));
  }
  EXPECT_EQ(pair.lane(), GetParam().lane);
}

TEST_P(TwoProcesses, AKilledPrefillWorkerFailsTheTransferAtOnce) {
  ProcessPair pair(ucx(), 64);
  ASSERT_TRUE(pair.transfer(1).complete);
  ASSERT_TRUE(pair.is_idle());
  pair.signal_child(SIGSTOP);
  pair.begin(8);
  ASSERT_TRUE(pair.has_begun()) << "killed earlier, it would only be dialled in vain";
  pair.signal_child(SIGKILL);
  const auto outcome = pair.wait(std::chrono::seconds(3));
  EXPECT_FALSE(outcome.complete);
  EXPECT_NE(outcome.error.find("lost"), std::string::npos) << outcome.error;
}

TEST_P(TwoProcesses, AStoppedPrefillWorkerIsGivenUpByHeartbeat) {
  TransferOptions options;
  options.heartbeat = std::chrono::milliseconds(200);
  ProcessPair pair(ucx(), 64, options);
  ASSERT_TRUE(pair.transfer(1).complete);
  pair.signal_child(SIGSTOP);
  pair.begin(8);
  const auto outcome = pair.wait(std::chrono::seconds(4));
  pair.signal_child(SIGKILL);
  EXPECT_FALSE(outcome.complete);
  EXPECT_NE(outcome.error.find("no sign of life"), std::string::npos) << outcome.error;
}

// Where neither mapping nor tracing is permitted, bulk goes by messages also between processes of one host.
INSTANTIATE_TEST_SUITE_P(Lanes, TwoProcesses,
                         testing::Values(Lane{"Mapped", "", UcxBulk::automatic, "mapped"},
                                         Lane{"ProcessCopy", "", UcxBulk::process_copy, "process copy"},
                                         Lane{"Messages", "", UcxBulk::messages, "messages"},
                                         Lane{"Tcp", "tcp,self", UcxBulk::automatic, "messages"}),
                         [](const auto& lane) { return lane.param.name; });

TEST(TwoProcessesByTls, PeersOfOneAuthorityTransferKv) {
  const Authority authority;
  ProcessPair pair({}, 64, {}, {authority.member(), authority.member()});
  const auto outcome = pair.transfer(64);
  ASSERT_TRUE(outcome.complete) << outcome.error;
  EXPECT_TRUE(pair.bytes_are_right(64));
}

TEST(TwoProcessesByTls, APeerThatIsNotTrustedFailsTheTransferAtOnceAndForAWhile) {
  const Authority authority, other;
  ProcessPair pair({}, 64, {}, {other.member(), authority.member()});
  for (int i = 0; i < 2; ++i) {
    const auto outcome = pair.transfer(1);
    EXPECT_FALSE(outcome.complete);
    EXPECT_NE(outcome.error.find("signature failure"), std::string::npos) << outcome.error;
    EXPECT_EQ(outcome.bytes, 0u);
  }
}

TEST(SelfTestAtStart, ASlowLaneIsRefusedWithASentence) {
  const ProcessPool pool(4);
  KvTransferConfig config = process_config(random_id<InstanceId>(), pool);
  config.self_test_bytes = 1 << 20;
  config.self_test_bytes_per_second_min = 1e15;
  const SteadyClock clock;
  KvTransferService service(config, [] { return make_ucx_transport({}); }, [](const TransferEvent&) {}, clock);
  try {
    service.start();
    FAIL() << "the floor was not enforced";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("below the floor"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("lane mapped"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace penstock::worker::transfer::test
