// What P does with messages and links. Every message is idempotent; one about a transfer that is not here gets "gone".
#include "worker/core/transfer/sender.hpp"

namespace penstock::worker::transfer {

HelloResult Sender::on_hello(const Envelope& envelope, TimePoint now) {
  auto reject = [&](RejectCode code, std::string detail) {
    out_.note("peer rejected", detail);
    return HelloResult{0, out_.message(envelope.source, envelope.key, RejectMessage{code, std::move(detail)})};
  };
  const auto* hello = std::get_if<HelloMessage>(&envelope.message);
  if (hello == nullptr) return reject(RejectCode::malformed, "the first message must be HELLO");
  if (envelope.destination != local_.instance) {
    return reject(RejectCode::unknown_instance, "instance " + to_string(envelope.destination) + " is not here");
  }
  if (hello->fingerprint != local_.fingerprint || hello->block_bytes != local_.block_bytes) {
    return reject(RejectCode::layout, "the KV layouts differ: " + hello->fingerprint + " and " + local_.fingerprint);
  }
  if (hello->transport != local_.transport) {
    return reject(RejectCode::transport, "the transports differ: " + hello->transport + " and " + local_.transport);
  }
  auto ticket = protocol::check_ticket(local_.ticket_key, hello->ticket);
  if (!ticket || ticket->prefill != local_.instance || ticket->decode != envelope.source ||
      !ticket_clock_.admit(*ticket, now)) {
    return reject(RejectCode::ticket, "the ticket is not valid for this pair of workers");
  }
  if (draining_ && !has_begun(*ticket)) return reject(RejectCode::draining, "the worker is draining");
  if (LinkId old = link_of(envelope.source); old != 0) on_link_lost(old, "the peer connected again", now);
  if (links_.size() >= options_.links_max) return reject(RejectCode::full, "too many peers");
  const LinkId link = out_.new_link();
  links_[link] = {envelope.source, now, now + options_.heartbeat};
  out_.push(Connect{link, hello->address});
  HelloAckMessage ack;
  ack.pool_blocks = local_.pool_blocks;
  ack.block_bytes = local_.block_bytes;
  ack.lease_ms = static_cast<std::uint32_t>(options_.lease / std::chrono::milliseconds(1));
  ack.address = local_.address;
  return {link, out_.message(envelope.source, envelope.key, std::move(ack))};
}

/// Whether the ticket is for what a PREFILL or REOFFER asked for before: who fetches that is let in also while we
/// drain.
bool Sender::has_begun(const protocol::Ticket& ticket) const {
  auto transfer = live_.find(ticket.transfer);
  return transfer != live_.end() && transfer->second.key.attempt == ticket.attempt &&
         transfer->second.peer == ticket.decode;
}

void Sender::on_link_lost(LinkId id, const std::string& why, TimePoint now) {
  auto link = links_.find(id);
  if (link == links_.end()) return;
  ++out_.gauges.links_lost;
  out_.note("lost a decode worker", to_string(link->second.peer) + ": " + why);
  links_.erase(link);
  out_.push(Close{id});
  for (auto& [transfer_id, transfer] : live_) {
    if (transfer.link != id) continue;
    transfer.link = 0;
    transfer.orphan_until = now + options_.reoffer_window;
    set_deadline(transfer);
  }
}

LinkId Sender::link_of(InstanceId peer) const {
  for (const auto& [id, link] : links_) {
    if (link.peer == peer) return id;
  }
  return 0;
}

void Sender::gone(LinkId link, InstanceId peer, TransferKey key) {
  if (tombstones_.contains(key)) ++out_.gauges.tombstone_hits;
  ++out_.gauges.messages_ignored;
  out_.send(link, peer, key, GoneMessage{});
}

void Sender::on_message(const Envelope& envelope, TimePoint now) {
  const LinkId id = link_of(envelope.source);
  if (id == 0) {
    ++out_.gauges.messages_bad;
    return;
  }
  if (envelope.destination != local_.instance) {
    ++out_.gauges.messages_bad;
    return out_.send(id, envelope.source, envelope.key, UnknownInstanceMessage{});
  }
  links_[id].heard_at = now;
  if (const auto* want = std::get_if<WantMessage>(&envelope.message)) return handle(envelope, id, *want, now);
  if (const auto* done = std::get_if<DoneMessage>(&envelope.message)) return handle(envelope, id, *done, now);
  if (const auto* renewal = std::get_if<RenewMessage>(&envelope.message)) return handle(envelope, id, *renewal, now);
  if (const auto* dropped = std::get_if<ReleaseMessage>(&envelope.message)) return handle(envelope, id, *dropped, now);
  if (const auto* ping = std::get_if<PingMessage>(&envelope.message)) {
    TransferGauges gauges;
    fill(gauges, now);
    return out_.send(id, envelope.source, {}, PongMessage{LinkRole::sender, ping->stamp, gauges.pinned_bytes});
  }
  if (const auto* pong = std::get_if<PongMessage>(&envelope.message)) {
    const Duration round_trip = now.time_since_epoch() - Duration(static_cast<std::int64_t>(pong->stamp));
    if (round_trip >= Duration{}) out_.push(Heartbeat{round_trip});
    return;
  }
  if (std::holds_alternative<UnknownInstanceMessage>(envelope.message)) {
    return on_link_lost(id, "the peer is another instance now", now);
  }
  if (const auto* goodbye = std::get_if<GoodbyeMessage>(&envelope.message)) {
    if (goodbye->parting == Parting::leaving) on_link_lost(id, "it has left", now);
    return;  // a draining D still fetches what it has accepted
  }
  ++out_.gauges.messages_ignored;
}

void Sender::handle(const Envelope& envelope, LinkId link, const WantMessage& want, TimePoint now) {
  const TransferKey key = envelope.key;
  auto ticket = protocol::check_ticket(local_.ticket_key, want.ticket);
  if (!ticket || ticket->transfer != key.transfer || ticket->attempt != key.attempt ||
      ticket->prefill != local_.instance || ticket->decode != envelope.source || !ticket_clock_.admit(*ticket, now)) {
    ++out_.gauges.messages_bad;
    return gone(link, envelope.source, key);
  }
  if (Transfer* transfer = find(key)) {
    if (transfer->peer != envelope.source) return gone(link, envelope.source, key);
    return bind(*transfer, link, want.next_chunk, now);
  }
  auto other = live_.find(key.transfer);
  const bool older = other != live_.end() && other->second.key.attempt > key.attempt;
  if (draining_ || older || tombstones_.contains(key)) return gone(link, envelope.source, key);
  // EXPECT overtook PREFILL (or REOFFER): remember it, within bounds.
  if (early_.size() < std::size_t{options_.transfers_max} * 4) {
    early_[key] = {link, envelope.source, now + options_.tombstone};
  }
}

void Sender::handle(const Envelope& envelope, LinkId link, const DoneMessage& done, TimePoint now) {
  const TransferKey key = envelope.key;
  auto answer = [&](bool valid) { out_.send(link, envelope.source, key, DoneAckMessage{done.chunk, valid}); };
  Transfer* transfer = find(key);
  if (transfer == nullptr || transfer->peer != envelope.source) {
    auto grave = tombstones_.find(key);
    ++out_.gauges.messages_ignored;
    if (grave == tombstones_.end()) return answer(false);
    ++out_.gauges.tombstone_hits;
    return answer(done.chunk < grave->second.valid.size() && grave->second.valid[done.chunk]);
  }
  if (done.chunk >= transfer->chunks.size()) return answer(false);
  Chunk& chunk = transfer->chunks[done.chunk];
  if (chunk.state == ChunkState::pinned) {
    chunk.state = ChunkState::held;
    chunk.valid = true;
    ++transfer->acknowledged;
  }
  answer(chunk.valid);
  renew(*transfer, now);
  if (transfer->last_offered() && transfer->acknowledged == transfer->chunks.size()) {
    end(*transfer, TransferEnd::committed, "", now);
  }
}

void Sender::handle(const Envelope& envelope, LinkId link, const RenewMessage& message, TimePoint now) {
  RenewedMessage renewed;
  for (const Renewal& renewal : message.transfers) {
    Transfer* transfer = find(renewal.key);
    if (transfer != nullptr && transfer->peer == envelope.source && transfer->link == link) {
      renew(*transfer, now);
      send_offers(*transfer, renewal.next_chunk, now);
    } else if (!early_.contains(renewal.key)) {
      if (tombstones_.contains(renewal.key)) ++out_.gauges.tombstone_hits;
      renewed.unknown.push_back(renewal.key);
    }
  }
  if (!renewed.unknown.empty()) out_.send(link, envelope.source, {}, std::move(renewed));
}

void Sender::handle(const Envelope& envelope, LinkId, const ReleaseMessage& message, TimePoint now) {
  early_.erase(envelope.key);
  Transfer* transfer = find(envelope.key);
  if (transfer == nullptr || transfer->peer != envelope.source) {
    ++out_.gauges.messages_ignored;
    return;
  }
  end(*transfer, TransferEnd::released, message.reason, now);
}

}  // namespace penstock::worker::transfer
