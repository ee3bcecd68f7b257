// D's connections to prefill workers: dialling with back-off, heartbeats, renewals, the window of reads in flight.
#include <algorithm>

#include "worker/core/transfer/receiver.hpp"

namespace penstock::worker::transfer {

LinkId Receiver::link_of(InstanceId peer) const {
  for (const auto& [id, link] : links_) {
    if (link.peer == peer && link.state != LinkState::closing) return id;
  }
  return 0;
}

/// Joins the transfer to the link to its peer, which is dialled if there is none and the back-off is over.
void Receiver::connect(Transfer& transfer, TimePoint now) {
  transfer.link = link_of(transfer.peer);
  if (transfer.link != 0) {
    if (links_.at(transfer.link).state == LinkState::up) want(transfer);
    return;
  }
  if (auto dial = dials_.find(transfer.peer); dial != dials_.end()) {
    if (dial->second.reject_until > now) {
      return fail(transfer, TransferEnd::failed, {ErrorCode::unavailable, dial->second.why}, Tell::nobody);
    }
    if (dial->second.retry_at > now) return wake_at(dial->second.retry_at);
  }
  if (links_.size() >= options_.links_max) {
    return fail(transfer, TransferEnd::failed, {ErrorCode::resource_exhausted, "too many peers"}, Tell::nobody);
  }
  transfer.link = out_.new_link();
  Link& link = links_[transfer.link];
  link.peer = transfer.peer;
  link.dial_until = now + options_.handshake;
  wake_at(link.dial_until);
  HelloMessage hello{local_.fingerprint, transfer.ticket,    local_.transport,
                     local_.pool_blocks, local_.block_bytes, local_.address};
  out_.push(Dial{transfer.link, transfer.peer_address, out_.message(transfer.peer, transfer.key, std::move(hello))});
}

void Receiver::on_dial_reply(LinkId id, base::BytesView reply, TimePoint now) {
  auto found = links_.find(id);
  if (found == links_.end() || found->second.state != LinkState::dialing) return;
  Link& link = found->second;
  auto envelope = decode(reply);
  if (!envelope) return dial_failed(id, envelope.error().message, now);
  if (envelope->destination != local_.instance) return dial_failed(id, "the answer is for another instance", now);
  if (const auto* no = std::get_if<RejectMessage>(&envelope->message)) return reject(id, *no, now);
  const auto* ack = std::get_if<HelloAckMessage>(&envelope->message);
  if (ack == nullptr) return dial_failed(id, "the answer to HELLO is neither HELLO_ACK nor REJECT", now);
  if (envelope->source != link.peer || ack->block_bytes != local_.block_bytes) {
    return reject(id, {RejectCode::layout, "the peer is not the one that the router named"}, now);
  }
  link.state = LinkState::up;
  link.heard_at = link.progress_at = now;
  link.next_ping = now + options_.heartbeat;
  link.lease = std::max<Duration>(std::chrono::milliseconds(ack->lease_ms), std::chrono::milliseconds(30));
  link.next_renew = now + link.lease / 3;
  link.remote_blocks = ack->pool_blocks;
  wake_at(std::min(link.next_ping, link.next_renew));
  dials_.erase(link.peer);
  out_.note("connected to a prefill worker", to_string(link.peer));
  out_.push(Connect{id, ack->address});
  for (auto& [key, transfer] : transfers_) {
    if (transfer.peer != link.peer || transfer.failure) continue;
    transfer.link = id;
    want(transfer);
  }
}

void Receiver::want(Transfer& transfer) {
  out_.send(transfer.link, transfer.peer, transfer.key, WantMessage{transfer.ticket, transfer.next_announce});
}

void Receiver::dial_failed(LinkId id, const std::string& why, TimePoint now) {
  const InstanceId peer = links_.at(id).peer;
  close_link(id);
  PeerDial& dial = dials_[peer];
  dial.first_failed_at = std::min(dial.first_failed_at, now);
  dial.why = why;
  dial.backoff = std::clamp<Duration>(dial.backoff * 2, options_.backoff_min, options_.backoff_max);
  const double jitter = 0.5 + random_.uniform() / 2;
  dial.retry_at = now + std::chrono::duration_cast<Duration>(dial.backoff * jitter);
  wake_at(dial.retry_at);
  if (now - dial.first_failed_at < options_.dial_give_up) return;
  dials_.erase(peer);
  fail_all(peer, {ErrorCode::unavailable, "no connection to the prefill worker: " + why});
}

void Receiver::reject(LinkId id, const RejectMessage& message, TimePoint now) {
  out_.note("a prefill worker rejected us", message.detail);
  // A ticket is one transfer's; the other reasons stay true for a while.
  give_up(id, message.detail, message.code != RejectCode::ticket ? now + options_.reject_cache : TimePoint::min());
}

void Receiver::on_dial_refused(LinkId id, const std::string& why, TimePoint now) {
  auto found = links_.find(id);
  if (found == links_.end() || found->second.state != LinkState::dialing) return;
  out_.note("no trust between this worker and a prefill worker", why);
  give_up(id, why, now + options_.reject_cache);
}

/// Fails the transfers from the dialled peer; new ones fail at once until `until`.
void Receiver::give_up(LinkId id, const std::string& why, TimePoint until) {
  const InstanceId peer = links_.at(id).peer;
  close_link(id);
  PeerDial& dial = dials_[peer];
  dial.why = "the prefill worker refuses: " + why;
  dial.reject_until = until;
  fail_all(peer, {ErrorCode::unavailable, dial.why});
}

void Receiver::on_link_lost(LinkId id, const std::string& why, TimePoint now) {
  auto found = links_.find(id);
  if (found == links_.end() || found->second.state == LinkState::closing) return;
  if (found->second.state == LinkState::dialing) return dial_failed(id, why, now);
  ++out_.gauges.links_lost;
  const InstanceId peer = found->second.peer;
  out_.note("lost a prefill worker", to_string(peer) + ": " + why);
  close_link(id);
  fail_all(peer, {ErrorCode::unavailable, "the prefill worker is lost: " + why});
}

/// Reads in flight on it end with an error, from the transport; until then their blocks stay reserved.
void Receiver::close_link(LinkId id) {
  Link& link = links_.at(id);
  link.state = LinkState::closing;
  link.turns.clear();
  out_.push(Close{id});
  for (auto& [key, transfer] : transfers_) {
    if (transfer.link == id && !transfer.failure && transfer.chunks.empty()) transfer.link = 0;
  }
  forget_if_idle(id);
}

void Receiver::forget_if_idle(LinkId id) {
  auto link = links_.find(id);
  if (link != links_.end() && link->second.state == LinkState::closing && link->second.reads == 0) links_.erase(link);
}

void Receiver::fail_all(InstanceId peer, const Error& error) {
  std::vector<TransferKey> keys;
  for (const auto& [key, transfer] : transfers_) {
    if (transfer.peer == peer && !transfer.failure) keys.push_back(key);
  }
  for (TransferKey key : keys) fail(transfers_.at(key), TransferEnd::failed, error, Tell::nobody);
}

// ---- Reads in flight ----

/// Posts quanta of this link's chunks in turn while the window has room.
void Receiver::pump(LinkId id, TimePoint now) {
  auto found = links_.find(id);
  if (found == links_.end() || found->second.state != LinkState::up) return;
  Link& link = found->second;
  while (!link.turns.empty()) {
    const auto [key, index] = link.turns.front();
    Chunk* chunk = find_chunk(key, index, ChunkState::reading);
    if (chunk == nullptr || chunk->quanta.empty()) {
      link.turns.pop_front();
      continue;
    }
    const std::uint64_t bytes = chunk->quanta.front().bytes;
    if (link.reads > 0 && link.bytes_in_flight + bytes > options_.window_bytes) return;
    const ReadId read = out_.new_read();
    reads_[read] = {id, key, index, bytes};
    out_.push(Read{id, read, std::move(chunk->quanta.front().runs)});
    chunk->quanta.pop_front();
    ++chunk->reads;
    Transfer& transfer = transfers_.at(key);
    if (transfer.first_read_at == TimePoint{}) transfer.first_read_at = now;
    if (link.reads++ == 0) link.progress_at = now;
    link.bytes_in_flight += bytes;
    wake_at(link.progress_at + options_.no_progress);
    link.turns.pop_front();
    if (!chunk->quanta.empty()) link.turns.emplace_back(key, index);
  }
}

// ---- Messages ----

void Receiver::on_message(const Envelope& envelope, TimePoint now) {
  const LinkId id = link_of(envelope.source);
  if (id == 0 || links_.at(id).state != LinkState::up) {
    ++out_.gauges.messages_bad;
    return;
  }
  if (envelope.destination != local_.instance) {
    ++out_.gauges.messages_bad;
    return out_.send(id, envelope.source, envelope.key, UnknownInstanceMessage{});
  }
  links_.at(id).heard_at = now;
  Transfer* transfer = find(envelope.key);
  if (transfer != nullptr && (transfer->peer != envelope.source || transfer->link != id)) transfer = nullptr;
  const bool living = transfer != nullptr && !transfer->failure;
  if (const auto* offer = std::get_if<OfferMessage>(&envelope.message)) {
    if (living) return on_offer(*transfer, *offer, now);
    ++out_.gauges.messages_ignored;
    if (transfer == nullptr) out_.send(id, envelope.source, envelope.key, ReleaseMessage{"not expected here"});
  } else if (const auto* ack = std::get_if<DoneAckMessage>(&envelope.message)) {
    if (living) return on_done_ack(*transfer, *ack, now);
    ++out_.gauges.messages_ignored;
  } else if (const auto* abort = std::get_if<AbortMessage>(&envelope.message)) {
    if (living) {
      const TransferEnd end = abort->end == TransferEnd::committed ? TransferEnd::failed : abort->end;
      fail(*transfer, end, {ErrorCode::aborted, "prefill worker: " + abort->reason}, Tell::nobody);
    }
  } else if (std::holds_alternative<GoneMessage>(envelope.message)) {
    if (living && !only_answers_missing(*transfer)) {
      fail(*transfer, TransferEnd::expired, {ErrorCode::aborted, "the prefill worker no longer has this transfer"},
           Tell::nobody);
    }
  } else if (const auto* renewed = std::get_if<RenewedMessage>(&envelope.message)) {
    for (TransferKey key : renewed->unknown) {
      Transfer* lost = find(key);
      if (lost == nullptr || lost->failure || lost->link != id || only_answers_missing(*lost)) continue;
      want(*lost);  // P has not seen our WANT, or answers it with "gone"
    }
  } else if (const auto* ping = std::get_if<PingMessage>(&envelope.message)) {
    out_.send(id, envelope.source, {}, PongMessage{LinkRole::receiver, ping->stamp, 0});
  } else if (const auto* pong = std::get_if<PongMessage>(&envelope.message)) {
    const Duration round_trip = now.time_since_epoch() - Duration(static_cast<std::int64_t>(pong->stamp));
    if (round_trip >= Duration{}) out_.push(Heartbeat{round_trip});
  } else if (std::holds_alternative<UnknownInstanceMessage>(envelope.message)) {
    on_link_lost(id, "the peer is another instance now", now);
  } else if (const auto* goodbye = std::get_if<GoodbyeMessage>(&envelope.message)) {
    // A draining P still offers what it has begun, and answers "gone" for the rest.
    if (goodbye->parting == Parting::leaving) on_link_lost(id, "it has left", now);
  } else {
    ++out_.gauges.messages_ignored;
  }
}

// ---- Time ----

void Receiver::renew(LinkId id, Link& link, TimePoint now) {
  link.next_renew = now + link.lease / 3;
  RenewMessage message;
  auto flush = [&] {
    if (!message.transfers.empty()) out_.send(id, link.peer, {}, std::exchange(message, {}));
  };
  for (const auto& [key, transfer] : transfers_) {
    if (transfer.link != id || transfer.failure) continue;
    message.transfers.push_back({key, transfer.next_announce});
    if (message.transfers.size() == renewals_max) flush();
  }
  flush();
}

void Receiver::tick_links(TimePoint now) {
  std::vector<std::pair<LinkId, std::string>> lost;
  for (auto& [id, link] : links_) {
    if (link.state == LinkState::closing) continue;
    if (link.state == LinkState::dialing) {
      if (link.dial_until <= now) lost.emplace_back(id, "no answer to HELLO");
      wake_at(link.dial_until);
      continue;
    }
    if (now - link.heard_at > options_.heartbeat * options_.heartbeats_missed_max) {
      lost.emplace_back(id, "no sign of life");
      continue;
    }
    if (link.reads > 0 && now - link.progress_at >= options_.no_progress) {
      lost.emplace_back(id, "its reads make no progress");
      continue;
    }
    if (link.next_ping <= now) {
      link.next_ping = now + options_.heartbeat;
      const auto stamp = static_cast<std::uint64_t>(now.time_since_epoch().count());
      out_.send(id, link.peer, {}, PingMessage{LinkRole::receiver, stamp});
    }
    if (link.next_renew <= now) renew(id, link, now);
    wake_at(std::min(link.next_ping, link.next_renew));
    if (link.reads > 0) wake_at(link.progress_at + options_.no_progress);
  }
  for (const auto& [id, why] : lost) on_link_lost(id, why, now);
}

void Receiver::tick(TimePoint now) {
  if (now < next_) return;
  next_ = TimePoint::max();
  tick_links(now);
  std::vector<TransferKey> keys;
  for (const auto& [key, transfer] : transfers_) keys.push_back(key);
  for (TransferKey key : keys) {
    if (Transfer* transfer = find(key)) tick_transfer(*transfer, now);
    Transfer* transfer = find(key);
    if (transfer != nullptr && transfer->link == 0 && !transfer->failure) connect(*transfer, now);
  }
  std::erase_if(dials_, [&](const auto& entry) {
    const PeerDial& dial = entry.second;
    return dial.reject_until <= now && dial.retry_at + options_.dial_give_up <= now;
  });
}

void Receiver::drain() {
  draining_ = true;
  for (const auto& [id, link] : links_) {
    if (link.state == LinkState::up) out_.send(id, link.peer, {}, GoodbyeMessage{LinkRole::receiver});
  }
}

void Receiver::leave() {
  draining_ = true;
  for (const auto& [id, link] : links_) {
    if (link.state == LinkState::up) {
      out_.send(id, link.peer, {}, GoodbyeMessage{LinkRole::receiver, Parting::leaving});
    }
  }
}

std::size_t Receiver::links_up() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(links_, [](const auto& entry) { return entry.second.state == LinkState::up; }));
}

void Receiver::fill(TransferGauges& gauges) const {
  gauges.receives_live = transfers_.size();
  gauges.reserved_bytes = gauges.bytes_in_flight = 0;
  for (const auto& [id, link] : links_) gauges.bytes_in_flight += link.bytes_in_flight;
  for (const auto& [key, transfer] : transfers_) {
    for (const auto& [index, chunk] : transfer.chunks) {
      if (chunk.state != ChunkState::committed) gauges.reserved_bytes += chunk.local.size() * local_.block_bytes;
    }
  }
}

}  // namespace penstock::worker::transfer
