// P's side: holds pins of offered chunks under leases, answers DONE with `valid` only for chunks pinned without a break
// since their offer, and remembers ended transfers so that late messages get an answer. Pure; time is an argument.
// Bounds: transfers_max live transfers, links_max links, tombstones and early WANTs by their time and transfers_max
// * 4.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "common/protocol/messages.hpp"
#include "common/protocol/ticket.hpp"
#include "worker/core/transfer/actions.hpp"
#include "worker/core/transfer/options.hpp"

namespace penstock::worker::transfer {

struct HelloResult {
  LinkId link = 0;    // 0: rejected, close the channel after the reply
  base::Bytes reply;  // empty: nothing to say
};

class Sender {
 public:
  Sender(const TransferOptions& options, const LocalNode& local, Outbox& out);

  void begin_send(const protocol::TransferRoute& route, TimePoint now);
  void offer(OfferChunk chunk, TimePoint now);
  void reoffer(const protocol::TransferRoute& route, TimePoint now);
  void cancel(TransferKey key, const std::string& reason, TimePoint now);
  void drain();
  void leave();

  HelloResult on_hello(const Envelope& hello, TimePoint now);
  /// The link is broken or its peer is dead. Unknown links are ignored.
  void on_link_lost(LinkId link, const std::string& why, TimePoint now);
  void on_message(const Envelope& envelope, TimePoint now);

  void tick(TimePoint now);
  TimePoint next_deadline() const;
  void fill(TransferGauges& gauges, TimePoint now) const;
  std::size_t links_up() const { return links_.size(); }

 private:
  enum class ChunkState : std::uint8_t { pinned, held, released };  // held: validated, pinned for a REOFFER
  struct Chunk {
    OfferChunk offer;
    ChunkState state = ChunkState::pinned;
    bool valid = false;  // a DONE of the current attempt has been answered so
    TimePoint pinned_at;
    TimePoint lease_until;
    TimePoint sent_at = TimePoint::min();
  };
  struct Transfer {
    TransferKey key;
    InstanceId peer;
    std::string ticket;
    LinkId link = 0;  // 0 until WANT, and after the link is lost
    TimePoint orphan_until = TimePoint::max();
    TimePoint deadline = TimePoint::max();  // its entry in deadlines_
    std::vector<Chunk> chunks;
    std::size_t first_pinned = 0;  // chunks before it are released
    std::size_t acknowledged = 0;
    std::uint64_t bytes = 0;
    bool last_offered() const { return !chunks.empty() && chunks.back().offer.last; }
  };
  struct Link {
    InstanceId peer;
    TimePoint heard_at;
    TimePoint next_ping;
  };
  struct Tombstone {
    std::vector<bool> valid;
    TransferEnd end = TransferEnd::committed;
  };
  struct EarlyWant {
    LinkId link = 0;
    InstanceId peer;
    TimePoint until;
  };

  Result<void> check_route(const protocol::TransferRoute& route, TimePoint now);
  bool has_begun(const protocol::Ticket& ticket) const;
  LinkId link_of(InstanceId peer) const;
  Transfer* find(TransferKey key);
  void bind(Transfer& transfer, LinkId link, std::uint32_t next_chunk, TimePoint now);
  void send_offers(Transfer& transfer, std::uint32_t from, TimePoint now);
  void send_offer(const Transfer& transfer, const Chunk& chunk);
  void renew(Transfer& transfer, TimePoint now);
  void release(Transfer& transfer, Chunk& chunk, TransferEnd end);
  void set_deadline(Transfer& transfer);
  void end(Transfer& transfer, TransferEnd end, const std::string& detail, TimePoint now);
  void expire(Transfer& transfer, TimePoint now);
  void bury(TransferKey key, Tombstone tombstone, TimePoint now);
  void gone(LinkId link, InstanceId peer, TransferKey key);

  void handle(const Envelope& envelope, LinkId link, const WantMessage& message, TimePoint now);
  void handle(const Envelope& envelope, LinkId link, const DoneMessage& message, TimePoint now);
  void handle(const Envelope& envelope, LinkId link, const RenewMessage& message, TimePoint now);
  void handle(const Envelope& envelope, LinkId link, const ReleaseMessage& message, TimePoint now);

  const TransferOptions& options_;
  const LocalNode& local_;
  Outbox& out_;
  protocol::TicketClock ticket_clock_;
  std::map<TransferId, Transfer> live_;
  std::map<TransferKey, Tombstone, KeyOrder> tombstones_;
  std::deque<std::pair<TimePoint, TransferKey>> burials_;  // oldest first
  std::map<TransferKey, EarlyWant, KeyOrder> early_;
  std::map<LinkId, Link> links_;
  DeadlineSet<TransferId> deadlines_;
  bool draining_ = false;
};

}  // namespace penstock::worker::transfer
