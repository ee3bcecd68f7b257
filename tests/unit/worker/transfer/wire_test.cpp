// Wire format, tickets and read plans.
#include <gtest/gtest.h>

#include "common/protocol/ticket.hpp"
#include "common/time/random.hpp"
#include "worker/core/transfer/read_plan.hpp"
#include "worker/core/transfer/wire.hpp"

namespace penstock::worker::transfer {
namespace {

Envelope envelope(Message message) {
  return {{1, 2}, {3, 4}, {{5, 6}, 7}, 8, std::move(message)};
}

std::vector<Envelope> one_of_each() {
  OfferMessage offer{3, 32, 64, 500, 1, 2, true, "ticket", {4, 5, 6, 9}, {{1, 1}, {2, 2}}, {{0, 42, true}}};
  return {envelope(HelloMessage{"layout", "ticket", "ucx", 10, 4096, base::Bytes(100, std::byte{7})}),
          envelope(HelloAckMessage{10, 4096, 500, base::Bytes(3, std::byte{1})}),
          envelope(RejectMessage{RejectCode::layout, "differs"}),
          envelope(WantMessage{"ticket", 2}),
          envelope(offer),
          envelope(DoneMessage{3, 99}),
          envelope(DoneAckMessage{3, true}),
          envelope(RenewMessage{{{{{1, 1}, 2}, 3}}}),
          envelope(RenewedMessage{{{{1, 1}, 2}}}),
          envelope(ReleaseMessage{"full"}),
          envelope(AbortMessage{TransferEnd::expired, "late"}),
          envelope(GoneMessage{}),
          envelope(UnknownInstanceMessage{}),
          envelope(PingMessage{LinkRole::sender, 5}),
          envelope(PongMessage{LinkRole::receiver, 5, 6}),
          envelope(GoodbyeMessage{LinkRole::sender, Parting::leaving})};
}

TEST(TransferWire, EveryMessageComesBackEqual) {
  for (const Envelope& sent : one_of_each()) {
    auto got = decode(encode(sent));
    ASSERT_TRUE(got) << got.error().message << ", type " << sent.message.index();
    EXPECT_EQ(*got, sent);
  }
}

TEST(TransferWire, TheChecksumIsCrc32c) {
  EXPECT_EQ(crc32c(0, base::as_bytes("123456789")), 0xE3069283u);
  EXPECT_EQ(crc32c(crc32c(0, base::as_bytes("1234")), base::as_bytes("56789")), 0xE3069283u);
}

TEST(TransferWire, EveryTruncationAndEveryFlippedBitIsRefused) {
  for (const Envelope& sent : one_of_each()) {
    base::Bytes bytes = encode(sent);
    for (std::size_t size = 0; size < bytes.size(); ++size) EXPECT_FALSE(decode(base::BytesView(bytes).first(size)));
    for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
      bytes[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
      EXPECT_FALSE(decode(bytes)) << "bit " << bit;
      bytes[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    }
    bytes.push_back({});
    EXPECT_FALSE(decode(bytes));
  }
}

/// Bodies that lie, under a right checksum.
TEST(TransferWire, HugeCountsInAWellSignedBodyAreRefused) {
  Random random(11);
  for (int i = 0; i < 20'000; ++i) {
    for (const Envelope& sent : {one_of_each()[static_cast<std::size_t>(i) % one_of_each().size()]}) {
      base::Bytes bytes = encode(sent);
      if (bytes.size() == wire_header_bytes) continue;
      const std::size_t at = wire_header_bytes + random.below(bytes.size() - wire_header_bytes);
      bytes[at] = static_cast<std::byte>(random.below(2) == 0 ? 0xFF : random.below(256));
      std::memset(bytes.data() + 12, 0, 4);
      const std::uint32_t crc = crc32c(0, bytes);
      std::memcpy(bytes.data() + 12, &crc, 4);
      auto got = decode(bytes);
      if (got) {
        EXPECT_LE(encode(*got).size(), wire_header_bytes + wire_body_bytes_max);
      }
    }
  }
}

TEST(Ticket, RoundTripAndEveryChangedDigitIsRefused) {
  const protocol::Ticket ticket{{1, 2}, 3, {4, 5}, {6, 7}, 8, 9, 30};
  const std::string text = protocol::make_ticket("key", ticket);
  ASSERT_TRUE(protocol::check_ticket("key", text));
  EXPECT_EQ(*protocol::check_ticket("key", text), ticket);
  EXPECT_FALSE(protocol::check_ticket("other", text));
  EXPECT_FALSE(protocol::check_ticket("key", text.substr(2)));
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string changed = text;
    changed[i] = changed[i] == '0' ? '1' : '0';
    EXPECT_FALSE(protocol::check_ticket("key", changed)) << i;
  }
}

TEST(TicketClock, AReplayAfterTheValidityIsRefusedWithoutACommonClock) {
  protocol::TicketClock clock;
  const TimePoint start{std::chrono::hours(5)};
  const protocol::Ticket old{{1, 2}, 1, {4, 5}, {6, 7}, 8, 1'000'000, 30};
  EXPECT_TRUE(clock.admit(old, start));
  EXPECT_TRUE(clock.admit(old, start + std::chrono::seconds(29)));
  EXPECT_FALSE(clock.admit(old, start + std::chrono::seconds(31)));
  // A newer ticket of the same router shows how old an unseen one is.
  const protocol::Ticket older{{1, 3}, 1, {4, 5}, {6, 7}, 8, 1'000'000 - 40'000, 30};
  EXPECT_FALSE(clock.admit(older, start + std::chrono::seconds(1)));
}

TEST(ReadPlan, MergesWhereBothSidesAreAdjacentAndCutsIntoQuanta) {
  const std::vector<BlockIndex> remote{4, 5, 6, 10}, local{0, 1, 7, 8};
  const auto quanta = plan_reads(remote, local, {}, 100, 1000);
  ASSERT_EQ(quanta.size(), 1u);
  EXPECT_EQ(quanta[0].runs, (std::vector<ReadRun>{{400, 0, 200}, {600, 700, 100}, {1000, 800, 100}}));
  std::uint64_t bytes = 0;
  for (const auto& quantum : plan_reads(remote, local, {false, true}, 100, 130)) {
    EXPECT_LE(quantum.bytes, 130u);
    bytes += quantum.bytes;
  }
  EXPECT_EQ(bytes, 300u);
}

}  // namespace
}  // namespace penstock::worker::transfer
