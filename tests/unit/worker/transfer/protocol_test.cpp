// The KV transfer protocol between two or three workers, without faults and with one chosen event each.
#include "tests/unit/worker/transfer/world.hpp"

namespace penstock::worker::transfer::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// After all ends: no block is lost on either side, no pin is left.
void expect_no_leak(const Node& node) {
  std::size_t held = 0;
  for (const auto& [key, chunks] : node.committed) {
    for (const auto& [chunk, blocks] : chunks) held += blocks.size();
  }
  EXPECT_TRUE(node.pins.empty());
  EXPECT_EQ(node.free_blocks.size() + held, pool_blocks);
}

TEST(Transfer, ChunksAreReadValidatedAndCommittedInOrder) {
  World world;
  Node& p = world.add();
  Node& d = world.add();
  const TransferKey key = world.begin(1, 0, p, d);
  for (std::uint32_t chunk = 0; chunk < 3; ++chunk) p.offer(key, chunk, 8, chunk == 2);
  world.run(milliseconds(100));
  const auto complete = d.events<ReceiveComplete>();
  ASSERT_EQ(complete.size(), 1u);
  EXPECT_EQ(complete[0].first_tokens, (std::vector<FirstToken>{{0, 42, false}}));
  EXPECT_EQ(complete[0].bytes, 24 * block_bytes);
  EXPECT_EQ(complete[0].token_end, 24 * block_tokens);
  ASSERT_EQ(p.events<SendEnded>().size(), 1u);
  EXPECT_EQ(p.events<SendEnded>()[0].end, TransferEnd::committed);
  EXPECT_EQ(p.events<ChunkReleased>().size(), 3u);
  expect_no_leak(p);
  expect_no_leak(d);
}

TEST(Transfer, ExpectMayComeBeforePrefill) {
  World world;
  Node& p = world.add();
  Node& d = world.add();
  world.expect(1, 0, p, d);
  world.run(milliseconds(50));
  p.driver->machine().sender().begin_send(world.route(1, 0, p, d, d), world.clock.now());
  p.offer({id_of<TransferId>(1), 0}, 0, 4, true);
  world.run(milliseconds(50));
  EXPECT_EQ(d.events<ReceiveComplete>().size(), 1u);
}

TEST(Transfer, ALeaseThatEndsBetweenReadAndDoneIsNeverCommitted) {
  World world;
  Node& p = world.add();
  Node& d = world.add();
  const TransferKey key = world.begin(1, 0, p, d);
  p.offer(key, 0, 4, true);
  d.hold_reservations = true;
  world.run(milliseconds(50));
  const auto wanted = d.events<ReserveBlocks>();
  ASSERT_EQ(wanted.size(), 1u);
  d.reserve(wanted[0]);
  d.driver->carry_out(world.clock.now());
  d.transport->hang();  // the read is posted, then D stops until P's lease is over and the blocks are reused
  world.clock.advance(milliseconds(600));
  p.poll();
  ASSERT_EQ(p.events<SendEnded>().size(), 1u);
  EXPECT_EQ(p.events<SendEnded>()[0].end, TransferEnd::expired);
  d.transport->resume();
  world.run(milliseconds(200));
  EXPECT_TRUE(d.events<ChunkCommitted>().empty());
  EXPECT_EQ(d.events<ReceiveFailed>().size(), 1u);
  expect_no_leak(p);
  expect_no_leak(d);
}

TEST(Transfer, ExpiryNeedsNoTrafficAndARenewedHeadHidesNothing) {
  World world;
  Node& p = world.add();
  Node& d = world.add();
  d.refuse_room = true;  // stays queued: renewed, but not for ever
  const TransferKey renewed = world.begin(1, 0, p, d);
  p.offer(renewed, 0, 30, true);
  p.driver->machine().sender().begin_send(world.route(2, 0, p, d, d), world.clock.now());
  p.offer({id_of<TransferId>(2), 0}, 0, 30, true);  // its EXPECT never comes
  world.run(milliseconds(1000));
  ASSERT_EQ(p.events<SendEnded>().size(), 1u);
  EXPECT_EQ(p.events<SendEnded>()[0].key.transfer, id_of<TransferId>(2));
  world.run(milliseconds(2500));  // the longest pin is 3 s
  EXPECT_EQ(p.events<SendEnded>().size(), 2u);
  expect_no_leak(p);
  expect_no_leak(d);
}

TEST(Transfer, ADecodeWorkerThatDiesIsReplacedInsideTheWindow) {
  World world;
  Node& p = world.add();
  Node& d = world.add();
  Node& other = world.add();
  d.hold_reservations = true;
  const TransferKey key = world.begin(1, 0, p, d);
  p.offer(key, 0, 4, false);
  p.offer(key, 1, 4, true);
  world.run(milliseconds(50));
  world.kill(d);
  world.run(milliseconds(50));
  p.driver->machine().sender().reoffer(world.route(1, 1, p, other, other), world.clock.now());
  p.driver->carry_out(world.clock.now());
  world.expect(1, 1, p, other);
  world.run(milliseconds(100));
  EXPECT_EQ(other.events<ReceiveComplete>().size(), 1u);
  expect_no_leak(p);
}

TEST(Transfer, WithoutAReofferThePinsOfADeadPeerEndQuickly) {
  World world;
  Node& p = world.add();
  Node& d = world.add();
  d.hold_reservations = true;
  p.offer(world.begin(1, 0, p, d), 0, 4, true);
  world.run(milliseconds(50));
  world.kill(d);
  world.run(milliseconds(450));
  ASSERT_EQ(p.events<SendEnded>().size(), 1u);
  expect_no_leak(p);
}

TEST(Transfer, AHungPrefillWorkerIsGivenUpAfterThreeHeartbeats) {
  TransferOptions options = fast_options();
  options.heartbeat = milliseconds(100);
  World world({}, options);
  Node& p = world.add();
  Node& d = world.add();
  p.offer(world.begin(1, 0, p, d), 0, 4, false);
  world.run(milliseconds(50));
  EXPECT_EQ(d.events<ChunkCommitted>().size(), 1u);
  p.alive = false;  // stopped, not dead: its channel stays open
  world.run(milliseconds(450));
  ASSERT_EQ(d.events<ReceiveFailed>().size(), 1u);
  EXPECT_EQ(d.events<ReceiveFailed>()[0].error.code, ErrorCode::unavailable);
  expect_no_leak(d);
}

TEST(Transfer, APrefillWorkerThatLeavesFailsItsTransfersAtOnce) {
  World world;
  Node& p = world.add();
  Node& d = world.add();
  p.offer(world.begin(1, 0, p, d), 0, 4, false);
  world.run(milliseconds(50));
  ASSERT_EQ(d.events<ChunkCommitted>().size(), 1u);
  p.driver->machine().leave();
  p.driver->carry_out(world.clock.now());
  p.alive = false;  // its channel stays open: only GOODBYE tells
  world.run(milliseconds(10));
  ASSERT_EQ(d.events<ReceiveFailed>().size(), 1u);
  EXPECT_NE(d.events<ReceiveFailed>()[0].error.message.find("it has left"), std::string::npos);
  EXPECT_EQ(d.driver->machine().gauges(world.clock.now()).links_up, 0u);
  expect_no_leak(d);
}

TEST(Transfer, ADecodeWorkerThatLeavesGivesItsPinsBackAfterTheReofferWindow) {
  World world;
  Node& p = world.add();
  Node& d = world.add();
  d.hold_reservations = true;
  p.offer(world.begin(1, 0, p, d), 0, 4, true);
  world.run(milliseconds(50));
  d.driver->machine().leave();
  d.driver->carry_out(world.clock.now());
  d.alive = false;
  world.run(milliseconds(10));
  EXPECT_EQ(p.driver->machine().gauges(world.clock.now()).links_up, 0u);
  world.run(milliseconds(420));  // the lease would be 500 ms, three heartbeats 3 s
  ASSERT_EQ(p.events<SendEnded>().size(), 1u);
  expect_no_leak(p);
}

TEST(Transfer, ADrainingPrefillWorkerFinishesWhatItHasBegunAndAnswersTheRestAtOnce) {
  World world;
  Node& p = world.add();
  Node& d = world.add();
  const TransferKey begun = world.begin(1, 0, p, d);
  p.offer(begun, 0, 4, false);
  world.expect(2, 0, p, d);  // its PREFILL has not come yet
  world.run(milliseconds(50));
  p.driver->machine().drain();
  p.driver->carry_out(world.clock.now());
  world.expect(3, 0, p, d);
  world.run(milliseconds(20));
  EXPECT_EQ(d.events<ReceiveFailed>().size(), 2u);
  p.offer(begun, 1, 4, true);
  world.run(milliseconds(50));
  ASSERT_EQ(d.events<ReceiveComplete>().size(), 1u);
  EXPECT_EQ(d.events<ReceiveComplete>()[0].key, begun);
  expect_no_leak(p);
  expect_no_leak(d);
}

TEST(Transfer, ADrainingPrefillWorkerLetsInWhoFetchesWhatItHasBegun) {
  World world;
  Node& p = world.add();
  Node& d = world.add();
  const auto route = world.route(1, 0, p, d, d);
  p.driver->machine().sender().begin_send(route, world.clock.now());
  p.driver->machine().drain();
  p.offer({route.transfer, 0}, 0, 4, true);
  world.expect(1, 0, p, d);  // D dials only now
  world.run(milliseconds(50));
  EXPECT_EQ(d.events<ReceiveComplete>().size(), 1u);
  expect_no_leak(p);
}

TEST(Transfer, AnOfferAgainIsTakenUpWhileThePrefillWorkerDrains) {
  World world;
  Node& p = world.add();
  Node& dead = world.add();
  Node& d = world.add();
  dead.hold_reservations = true;
  p.offer(world.begin(1, 0, p, dead), 0, 4, true);
  world.run(milliseconds(50));
  world.kill(dead);
  p.driver->machine().drain();
  p.driver->carry_out(world.clock.now());
  p.driver->machine().sender().reoffer(world.route(1, 1, p, d, d), world.clock.now());
  p.driver->carry_out(world.clock.now());
  world.expect(1, 1, p, d);
  world.run(milliseconds(100));
  EXPECT_EQ(d.events<ReceiveComplete>().size(), 1u);
  expect_no_leak(p);
}

TEST(Transfer, APrefillOfAnOlderAttemptIsTold) {
  World world;
  Node& p = world.add();
  Node& d = world.add();
  world.begin(1, 1, p, d);
  p.driver->machine().sender().begin_send(world.route(1, 0, p, d, d), world.clock.now());
  p.driver->carry_out(world.clock.now());
  ASSERT_EQ(p.events<SendEnded>().size(), 1u);
  EXPECT_EQ(p.events<SendEnded>()[0].key.attempt, 0u);
}

TEST(Transfer, ARestartedWorkerAtTheSameAddressIsAnotherInstance) {
  World world;
  Node& p = world.add();
  Node& d = world.add();
  const auto old_route = world.route(1, 0, p, d, p);
  p.alive = false;
  world.kill(p);
  Node& again = world.add();
  again.address = p.address;
  d.driver->machine().receiver().begin_receive(old_route, seconds(30), world.clock.now());
  world.run(milliseconds(50));
  ASSERT_EQ(d.events<ReceiveFailed>().size(), 1u);
  EXPECT_NE(d.events<ReceiveFailed>()[0].error.message.find("is not here"), std::string::npos);
}

TEST(Transfer, APeerWithoutTrustIsNotDialledAgainForAWhile) {
  World world;
  Node& p = world.add();
  Node& d = world.add();
  d.distrusts_all = true;
  world.expect(1, 0, p, d);
  world.run(milliseconds(20));
  world.expect(2, 0, p, d);
  world.run(milliseconds(20));
  ASSERT_EQ(d.events<ReceiveFailed>().size(), 2u);
  EXPECT_EQ(d.events<ReceiveFailed>()[0].error.code, ErrorCode::unavailable);
  EXPECT_EQ(d.events<ReceiveFailed>()[1].error.message, "the prefill worker refuses: bad certificate");
  EXPECT_EQ(d.dials, 1);
  d.distrusts_all = false;
  world.clock.advance(world.options.reject_cache);
  p.offer(world.begin(3, 0, p, d), 0, 4, true);
  world.run(milliseconds(50));
  EXPECT_EQ(d.events<ReceiveComplete>().size(), 1u);
}

TEST(Transfer, AForgedTicketOpensNothing) {
  World world;
  Node& p = world.add();
  Node& d = world.add();
  auto route = world.route(1, 0, p, d, p);
  route.ticket[10] = route.ticket[10] == '0' ? '1' : '0';
  d.driver->machine().receiver().begin_receive(route, seconds(1), world.clock.now());
  d.driver->carry_out(world.clock.now());
  ASSERT_EQ(d.events<ReceiveFailed>().size(), 1u);
  EXPECT_EQ(d.events<ReceiveFailed>()[0].error.code, ErrorCode::unauthenticated);
  EXPECT_EQ(p.driver->machine().gauges(world.clock.now()).links_up, 0u);
}

TEST(Transfer, ANewerAttemptEndsTheOlderOne) {
  World world;
  Node& p = world.add();
  Node& d = world.add();
  d.hold_reservations = true;
  p.offer(world.begin(1, 0, p, d), 0, 4, true);
  world.run(milliseconds(20));
  d.hold_reservations = false;
  const TransferKey key = world.begin(1, 1, p, d);
  p.driver->carry_out(world.clock.now());
  p.offer(key, 0, 4, true);
  world.run(milliseconds(100));
  ASSERT_EQ(d.events<ReceiveComplete>().size(), 1u);
  EXPECT_EQ(d.events<ReceiveComplete>()[0].key, key);
  EXPECT_EQ(d.events<ReceiveFailed>().size(), 1u);
  expect_no_leak(p);
  expect_no_leak(d);
}

TEST(Transfer, CancelWaitsForItsReads) {
  World world;
  Node& p = world.add();
  Node& d = world.add();
  d.hold_reservations = true;
  const TransferKey key = world.begin(1, 0, p, d);
  p.offer(key, 0, 8, true);
  world.run(milliseconds(20));
  d.reserve(d.events<ReserveBlocks>().at(0));
  d.driver->carry_out(world.clock.now());
  d.driver->machine().cancel(key, "client gone", world.clock.now());
  d.driver->carry_out(world.clock.now());
  EXPECT_TRUE(d.events<ChunkDiscarded>().empty()) << "reads are under way";
  world.run(milliseconds(50));
  EXPECT_EQ(d.events<ChunkDiscarded>().size(), 1u);
  EXPECT_EQ(d.events<ReceiveFailed>().size(), 1u);
  EXPECT_EQ(p.events<SendEnded>().at(0).end, TransferEnd::released);
  expect_no_leak(p);
  expect_no_leak(d);
}

}  // namespace
}  // namespace penstock::worker::transfer::test
