// D's side: connects to prefill workers, asks the engine for blocks as offers arrive, reads, asks P whether the pins
// held, and commits in order. Blocks are given back only when no read into them is under way. Pure; time is an
// argument. Bounds: transfers_max transfers, links_max links, chunks_max chunks a transfer, window_bytes of reads a
// link.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/protocol/messages.hpp"
#include "common/protocol/ticket.hpp"
#include "common/time/random.hpp"
#include "worker/core/transfer/actions.hpp"
#include "worker/core/transfer/options.hpp"
#include "worker/core/transfer/read_plan.hpp"

namespace penstock::worker::transfer {

class Receiver {
 public:
  Receiver(const TransferOptions& options, const LocalNode& local, Outbox& out, std::uint64_t seed);

  void begin_receive(const protocol::TransferRoute& route, Duration deadline, TimePoint now);
  void reserve(Reservation reservation, TimePoint now);
  void refuse_reservation(TransferKey key, std::uint32_t chunk, TimePoint now);
  void cancel(TransferKey key, const std::string& reason);
  void drain();
  void leave();

  void on_dial_reply(LinkId link, base::BytesView reply, TimePoint now);
  /// The dialled peer and we don't trust each other; dialling again would not help.
  void on_dial_refused(LinkId link, const std::string& why, TimePoint now);
  void on_link_lost(LinkId link, const std::string& why, TimePoint now);
  void on_message(const Envelope& envelope, TimePoint now);
  void on_read_done(LinkId link, ReadId read, const Result<void>& result, TimePoint now);

  void tick(TimePoint now);
  TimePoint next_deadline() const { return next_; }
  void fill(TransferGauges& gauges) const;
  std::size_t links_up() const;

 private:
  enum class ChunkState : std::uint8_t {
    assembling,  // parts of its offer are missing, or an earlier chunk is
    asked,       // ReserveBlocks is with the engine
    refused,     // asked again at `retry_at`
    reading,     // reserved
    done,        // all reads complete, DONE sent, again at `retry_at`
    validated,   // DONE_ACK(valid); waits for earlier chunks
    committed,
    discarded,
  };
  struct Chunk {
    ChunkState state = ChunkState::assembling;
    OfferMessage offer;  // of part 0 until all parts are here, then whole
    std::map<std::uint16_t, OfferMessage> parts;
    std::vector<BlockIndex> local;
    std::deque<ReadQuantum> quanta;  // not posted yet
    std::uint32_t reads = 0;         // posted, not completed
    std::uint64_t bytes = 0;
    TimePoint offered_at;
    TimePoint refused_since = TimePoint::max();
    TimePoint retry_at;
  };
  struct Transfer {
    TransferKey key;
    InstanceId peer;
    std::string peer_address;
    std::string ticket;
    LinkId link = 0;
    TimePoint expires;
    std::map<std::uint32_t, Chunk> chunks;
    std::uint32_t next_announce = 0;  // chunks below it have been asked for
    std::uint32_t next_commit = 0;
    std::optional<std::uint32_t> last_chunk;
    std::optional<ReceiveFailed> failure;  // set: closing, waits for its reads
    TransferRecord record;
    TimePoint first_offer_at, last_offer_at, first_read_at, last_read_at;
  };
  enum class LinkState : std::uint8_t { dialing, up, closing };
  struct Link {
    InstanceId peer;
    LinkState state = LinkState::dialing;
    TimePoint dial_until;
    TimePoint heard_at;
    TimePoint next_ping;
    TimePoint next_renew;
    TimePoint progress_at;
    Duration lease{};
    std::uint32_t remote_blocks = 0;
    std::uint64_t bytes_in_flight = 0;
    std::uint32_t reads = 0;
    std::deque<std::pair<TransferKey, std::uint32_t>> turns;  // chunks with quanta to post
  };
  struct PeerDial {  // between attempts to connect
    TimePoint first_failed_at = TimePoint::max();
    TimePoint retry_at = TimePoint::min();
    TimePoint reject_until = TimePoint::min();
    Duration backoff{};
    std::string why;
  };
  struct ReadInFlight {
    LinkId link = 0;
    TransferKey key;
    std::uint32_t chunk = 0;
    std::uint64_t bytes = 0;
  };
  using Transfers = std::map<TransferKey, Transfer, KeyOrder>;

  void wake_at(TimePoint time) { next_ = std::min(next_, time); }
  Transfer* find(TransferKey key);
  Chunk* find_chunk(TransferKey key, std::uint32_t chunk, ChunkState state);

  // Links (receiver_links.cpp).
  LinkId link_of(InstanceId peer) const;
  void connect(Transfer& transfer, TimePoint now);
  void dial_failed(LinkId link, const std::string& why, TimePoint now);
  void reject(LinkId link, const RejectMessage& message, TimePoint now);
  void give_up(LinkId link, const std::string& why, TimePoint until);
  void close_link(LinkId link);
  void forget_if_idle(LinkId link);
  void fail_all(InstanceId peer, const Error& error);
  void tick_links(TimePoint now);
  void renew(LinkId id, Link& link, TimePoint now);
  void want(Transfer& transfer);
  void pump(LinkId id, TimePoint now);

  // Transfers (receiver.cpp).
  void on_offer(Transfer& transfer, OfferMessage message, TimePoint now);
  bool assemble(Transfer& transfer, Chunk& chunk);
  void announce(Transfer& transfer, TimePoint now);
  void ask(Transfer& transfer, Chunk& chunk);
  void finish_reading(Transfer& transfer, Chunk& chunk, TimePoint now);
  void on_done_ack(Transfer& transfer, const DoneAckMessage& message, TimePoint now);
  void commit(Transfer& transfer, TimePoint now);
  enum class Tell : std::uint8_t { peer, nobody };
  void fail(Transfer& transfer, TransferEnd end, Error error, Tell tell);
  void finish_if_closed(Transfer& transfer);
  /// All offers are here and read: only the answers to our DONEs decide, which P gives even after its end.
  bool only_answers_missing(const Transfer& transfer) const;
  void tick_transfer(Transfer& transfer, TimePoint now);

  const TransferOptions& options_;
  const LocalNode& local_;
  Outbox& out_;
  Random random_;
  protocol::TicketClock ticket_clock_;
  Transfers transfers_;
  std::map<LinkId, Link> links_;
  std::map<InstanceId, PeerDial> dials_;
  std::map<ReadId, ReadInFlight> reads_;
  TimePoint next_ = TimePoint::max();
  bool draining_ = false;
};

}  // namespace penstock::worker::transfer
