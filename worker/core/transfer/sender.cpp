#include "worker/core/transfer/sender.hpp"

#include <algorithm>

namespace penstock::worker::transfer {

Sender::Sender(const TransferOptions& options, const LocalNode& local, Outbox& out)
    : options_(options), local_(local), out_(out) {}

// ---- From the engine ----

Result<void> Sender::check_route(const protocol::TransferRoute& route, TimePoint now) {
  PENSTOCK_TRY(const protocol::Ticket ticket, protocol::check_ticket(local_.ticket_key, route.ticket));
  if (ticket.transfer != route.transfer || ticket.attempt != route.attempt || ticket.prefill != local_.instance ||
      ticket.decode != route.peer) {
    return make_error(ErrorCode::permission_denied, "the transfer ticket is for another transfer");
  }
  return ticket_clock_.admit(ticket, now);
}

void Sender::begin_send(const protocol::TransferRoute& route, TimePoint now) {
  const TransferKey key{route.transfer, route.attempt};
  auto known = live_.find(route.transfer);
  auto refuse = [&](const std::string& why) { out_.emit(SendEnded{key, TransferEnd::failed, why, 0}); };
  if (known != live_.end()) {
    if (known->second.key == key) return;  // repeated
    if (known->second.key.attempt > route.attempt) return refuse("a newer attempt is here");
    end(known->second, TransferEnd::aborted, "superseded by a newer attempt", now);
  }
  if (draining_) return refuse("the worker is draining");
  if (auto checked = check_route(route, now); !checked) return refuse(checked.error().message);
  if (tombstones_.contains(key)) return refuse("this attempt has ended");
  if (live_.size() >= options_.transfers_max) return refuse("too many transfers");
  Transfer& transfer = live_[route.transfer];
  transfer.key = key;
  transfer.peer = route.peer;
  transfer.ticket = route.ticket;
  if (auto early = early_.find(key); early != early_.end()) {
    if (early->second.peer == route.peer && links_.contains(early->second.link)) {
      bind(transfer, early->second.link, 0, now);
    }
    early_.erase(early);
  }
}

void Sender::offer(OfferChunk offered, TimePoint now) {
  Transfer* transfer = find(offered.key);
  if (transfer == nullptr) return;  // ended meanwhile; the engine learns it from SendEnded
  if (offered.chunk != transfer->chunks.size() || transfer->last_offered() ||
      transfer->chunks.size() >= options_.chunks_max) {
    return end(*transfer, TransferEnd::failed, "chunks offered out of order", now);
  }
  transfer->bytes += offered.blocks.size() * local_.block_bytes;
  Chunk& chunk = transfer->chunks.emplace_back();
  chunk.offer = std::move(offered);
  chunk.pinned_at = now;
  chunk.lease_until = now + options_.lease;
  set_deadline(*transfer);
  send_offers(*transfer, chunk.offer.chunk, now);
}

void Sender::reoffer(const protocol::TransferRoute& route, TimePoint now) {
  const TransferKey key{route.transfer, route.attempt};
  auto known = live_.find(route.transfer);
  if (known == live_.end()) {
    out_.emit(SendEnded{key, TransferEnd::failed, "the transfer has ended, nothing is left to offer again", 0});
    return;
  }
  Transfer& transfer = known->second;
  if (transfer.key == key) return;  // repeated
  if (transfer.key.attempt > route.attempt) {
    return out_.emit(SendEnded{key, TransferEnd::failed, "a newer attempt is here", 0});
  }
  if (transfer.link != 0) {
    out_.send(transfer.link, transfer.peer, transfer.key, AbortMessage{TransferEnd::aborted, "offered to another"});
  }
  bury(transfer.key, {{}, TransferEnd::aborted}, now);
  transfer.key = key;
  transfer.peer = route.peer;
  transfer.ticket = route.ticket;
  transfer.link = 0;
  transfer.orphan_until = TimePoint::max();
  transfer.acknowledged = 0;
  if (auto checked = check_route(route, now); !checked) {
    return end(transfer, TransferEnd::failed, checked.error().message, now);
  }
  if (transfer.first_pinned > 0) {
    return end(transfer, TransferEnd::failed, "some chunks are no longer pinned", now);
  }
  for (Chunk& chunk : transfer.chunks) {
    chunk.offer.key = key;
    chunk.state = ChunkState::pinned;
    chunk.valid = false;
    chunk.sent_at = TimePoint::min();
    chunk.lease_until = now + options_.lease;
  }
  set_deadline(transfer);
  if (auto early = early_.find(key); early != early_.end()) {
    if (early->second.peer == route.peer && links_.contains(early->second.link)) {
      bind(transfer, early->second.link, 0, now);
    }
    early_.erase(early);
  }
}

void Sender::cancel(TransferKey key, const std::string& reason, TimePoint now) {
  if (Transfer* transfer = find(key)) end(*transfer, TransferEnd::aborted, reason, now);
}

void Sender::drain() {
  draining_ = true;
  for (const auto& [id, link] : links_) out_.send(id, link.peer, {}, GoodbyeMessage{LinkRole::sender});
  // Their PREFILL would be refused: whoever waits for an offer learns it now.
  for (const auto& [key, early] : std::exchange(early_, {})) gone(early.link, early.peer, key);
}

void Sender::leave() {
  draining_ = true;
  for (const auto& [id, link] : links_) {
    out_.send(id, link.peer, {}, GoodbyeMessage{LinkRole::sender, Parting::leaving});
  }
}

// ---- Pins ----

Sender::Transfer* Sender::find(TransferKey key) {
  auto found = live_.find(key.transfer);
  return found != live_.end() && found->second.key == key ? &found->second : nullptr;
}

void Sender::bind(Transfer& transfer, LinkId link, std::uint32_t next_chunk, TimePoint now) {
  transfer.link = link;
  transfer.orphan_until = TimePoint::max();
  renew(transfer, now);
  send_offers(transfer, next_chunk, now);
}

void Sender::send_offers(Transfer& transfer, std::uint32_t from, TimePoint now) {
  if (transfer.link == 0) return;
  for (std::size_t i = std::max<std::size_t>(from, transfer.first_pinned); i < transfer.chunks.size(); ++i) {
    Chunk& chunk = transfer.chunks[i];
    if (chunk.state != ChunkState::pinned) continue;
    if (chunk.sent_at != TimePoint::min() && now - chunk.sent_at < options_.resend) continue;
    chunk.sent_at = now;
    send_offer(transfer, chunk);
  }
}

void Sender::send_offer(const Transfer& transfer, const Chunk& chunk) {
  const OfferChunk& whole = chunk.offer;
  const std::size_t parts =
      std::max<std::size_t>(1, (whole.blocks.size() + blocks_per_offer_max - 1) / blocks_per_offer_max);
  for (std::size_t part = 0; part < parts; ++part) {
    OfferMessage message;
    message.chunk = whole.chunk;
    message.token_begin = whole.token_begin;
    message.token_end = whole.token_end;
    message.lease_ms = static_cast<std::uint32_t>(options_.lease / std::chrono::milliseconds(1));
    message.part = static_cast<std::uint16_t>(part);
    message.parts = static_cast<std::uint16_t>(parts);
    message.last = whole.last;
    message.ticket = transfer.ticket;
    auto slice = [&](const auto& all, auto& out) {
      const std::size_t begin = std::min(all.size(), part * blocks_per_offer_max);
      const std::size_t end = std::min(all.size(), begin + blocks_per_offer_max);
      out.assign(all.begin() + static_cast<std::ptrdiff_t>(begin), all.begin() + static_cast<std::ptrdiff_t>(end));
    };
    slice(whole.blocks, message.blocks);
    slice(whole.hashes, message.hashes);
    if (part == 0) message.first_tokens = whole.first_tokens;
    out_.send(transfer.link, transfer.peer, transfer.key, std::move(message));
  }
}

void Sender::renew(Transfer& transfer, TimePoint now) {
  for (Chunk& chunk : transfer.chunks) chunk.lease_until = now + options_.lease;
  ++out_.gauges.renewals;
  set_deadline(transfer);
}

/// Chunks are pinned in order and renewed together, so the first one that is still pinned has the earliest deadline.
void Sender::set_deadline(Transfer& transfer) {
  TimePoint deadline = transfer.orphan_until;
  if (transfer.first_pinned < transfer.chunks.size()) {
    const Chunk& chunk = transfer.chunks[transfer.first_pinned];
    deadline = std::min({deadline, chunk.lease_until, chunk.pinned_at + options_.max_pin});
  }
  deadlines_.set(transfer.key.transfer, transfer.deadline, deadline);
  transfer.deadline = deadline;
}

void Sender::release(Transfer& transfer, Chunk& chunk, TransferEnd end) {
  if (chunk.state == ChunkState::released) return;
  chunk.state = ChunkState::released;
  out_.emit(ChunkReleased{transfer.key, chunk.offer.chunk, chunk.valid ? TransferEnd::committed : end});
}

void Sender::expire(Transfer& transfer, TimePoint now) {
  if (transfer.orphan_until <= now) return end(transfer, TransferEnd::failed, "the decode worker is lost", now);
  // A validated chunk at its longest pin only stops being offerable again.
  while (transfer.first_pinned < transfer.chunks.size()) {
    Chunk& chunk = transfer.chunks[transfer.first_pinned];
    if (std::min(chunk.lease_until, chunk.pinned_at + options_.max_pin) > now) return set_deadline(transfer);
    if (!chunk.valid || chunk.lease_until <= now) {
      ++out_.gauges.leases_expired;
      return end(transfer, TransferEnd::expired, "the lease ran out", now);
    }
    release(transfer, chunk, TransferEnd::committed);
    ++transfer.first_pinned;
  }
  set_deadline(transfer);
}

void Sender::end(Transfer& transfer, TransferEnd end, const std::string& detail, TimePoint now) {
  Tombstone tombstone;
  tombstone.end = end;
  TransferRecord record{Side::send, end, 0, static_cast<std::uint32_t>(transfer.chunks.size())};
  for (Chunk& chunk : transfer.chunks) {
    tombstone.valid.push_back(chunk.valid);
    if (chunk.valid) record.bytes += chunk.offer.blocks.size() * local_.block_bytes;
    release(transfer, chunk, end);
  }
  if (transfer.link != 0 && end != TransferEnd::committed && end != TransferEnd::released) {
    out_.send(transfer.link, transfer.peer, transfer.key, AbortMessage{end, detail});
  }
  out_.emit(SendEnded{transfer.key, end, detail, record.bytes});
  out_.push(Ended{record});
  deadlines_.erase(transfer.key.transfer, transfer.deadline);
  const TransferKey key = transfer.key;
  live_.erase(key.transfer);
  bury(key, std::move(tombstone), now);
}

void Sender::bury(TransferKey key, Tombstone tombstone, TimePoint now) {
  tombstones_.insert_or_assign(key, std::move(tombstone));
  burials_.emplace_back(now + options_.tombstone, key);
  while (burials_.size() > std::size_t{options_.transfers_max} * 4) {
    tombstones_.erase(burials_.front().second);
    burials_.pop_front();
  }
}

// ---- Time ----

void Sender::tick(TimePoint now) {
  while (deadlines_.next() <= now) {
    Transfer& transfer = live_.at(deadlines_.first());
    expire(transfer, now);
  }
  while (!burials_.empty() && burials_.front().first <= now) {
    tombstones_.erase(burials_.front().second);
    burials_.pop_front();
  }
  std::erase_if(early_, [&](const auto& entry) { return entry.second.until <= now; });
  std::vector<LinkId> dead;
  for (auto& [id, link] : links_) {
    if (now - link.heard_at > options_.heartbeat * options_.heartbeats_missed_max) {
      dead.push_back(id);
    } else if (link.next_ping <= now) {
      link.next_ping = now + options_.heartbeat;
      const auto stamp = static_cast<std::uint64_t>(now.time_since_epoch().count());
      out_.send(id, link.peer, {}, PingMessage{LinkRole::sender, stamp});
    }
  }
  for (LinkId id : dead) on_link_lost(id, "no sign of life", now);
}

TimePoint Sender::next_deadline() const {
  TimePoint next = deadlines_.next();
  for (const auto& [id, link] : links_) next = std::min(next, link.next_ping);
  if (!burials_.empty()) next = std::min(next, burials_.front().first);
  return next;
}

void Sender::fill(TransferGauges& gauges, TimePoint now) const {
  gauges.sends_live = live_.size();
  gauges.pinned_bytes = 0;
  gauges.oldest_pin = {};
  for (const auto& [id, transfer] : live_) {
    for (std::size_t i = transfer.first_pinned; i < transfer.chunks.size(); ++i) {
      gauges.pinned_bytes += transfer.chunks[i].offer.blocks.size() * local_.block_bytes;
      gauges.oldest_pin = std::max(gauges.oldest_pin, now - transfer.chunks[i].pinned_at);
    }
  }
}

}  // namespace penstock::worker::transfer
