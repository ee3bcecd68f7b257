#include "worker/core/transfer/receiver.hpp"

#include <algorithm>

namespace penstock::worker::transfer {

Receiver::Receiver(const TransferOptions& options, const LocalNode& local, Outbox& out, std::uint64_t seed)
    : options_(options), local_(local), out_(out), random_(seed) {}

// ---- From the engine ----

void Receiver::begin_receive(const protocol::TransferRoute& route, Duration deadline, TimePoint now) {
  const TransferKey key{route.transfer, route.attempt};
  if (transfers_.contains(key)) return;
  auto refuse = [&](ErrorCode code, std::string why) {
    out_.emit(ReceiveFailed{key, TransferEnd::failed, make_error(code, std::move(why))});
  };
  std::vector<Transfer*> older;
  for (auto& [other, transfer] : transfers_) {
    if (other.transfer != key.transfer) continue;
    if (other.attempt > key.attempt) return refuse(ErrorCode::aborted, "a newer attempt is here");
    older.push_back(&transfer);
  }
  for (Transfer* transfer : older) {
    fail(*transfer, TransferEnd::aborted, {ErrorCode::aborted, "superseded by a newer attempt"}, Tell::peer);
  }
  if (draining_) return refuse(ErrorCode::unavailable, "the worker is draining");
  if (transfers_.size() >= options_.transfers_max) return refuse(ErrorCode::resource_exhausted, "too many transfers");
  auto ticket = protocol::check_ticket(local_.ticket_key, route.ticket);
  if (!ticket) return refuse(ticket.error().code, ticket.error().message);
  if (ticket->transfer != route.transfer || ticket->attempt != route.attempt || ticket->prefill != route.peer ||
      ticket->decode != local_.instance) {
    return refuse(ErrorCode::permission_denied, "the transfer ticket is for another transfer");
  }
  if (auto fresh = ticket_clock_.admit(*ticket, now); !fresh) return refuse(fresh.error().code, fresh.error().message);
  Transfer& transfer = transfers_[key];
  transfer.key = key;
  transfer.peer = route.peer;
  transfer.peer_address = route.peer_address;
  transfer.ticket = route.ticket;
  transfer.expires = now + (deadline > Duration{} ? std::min(deadline, options_.receive_max) : options_.receive_max);
  transfer.record.side = Side::receive;
  wake_at(transfer.expires);
  connect(transfer, now);
}

void Receiver::reserve(Reservation reservation, TimePoint now) {
  Transfer* transfer = find(reservation.key);
  if (transfer == nullptr) return;  // the engine frees what it reserved when it sees ReceiveFailed
  Chunk* chunk = find_chunk(reservation.key, reservation.chunk, ChunkState::asked);
  if (chunk == nullptr) return;
  const bool wrong = reservation.local.size() != chunk->offer.blocks.size() ||
                     std::ranges::any_of(reservation.local, [&](BlockIndex b) { return b >= local_.pool_blocks; });
  if (wrong) {
    return fail(*transfer, TransferEnd::failed, {ErrorCode::internal, "the reservation does not fit the offer"},
                Tell::peer);
  }
  chunk->state = ChunkState::reading;
  chunk->local = std::move(reservation.local);
  if (transfer->failure) {  // closing: nothing has been read into these blocks
    chunk->state = ChunkState::discarded;
    return out_.emit(ChunkDiscarded{reservation.key, reservation.chunk});
  }
  for (ReadQuantum& quantum :
       plan_reads(chunk->offer.blocks, chunk->local, reservation.skip, local_.block_bytes, options_.quantum_bytes)) {
    chunk->bytes += quantum.bytes;
    transfer->record.descriptors += static_cast<std::uint32_t>(quantum.runs.size());
    chunk->quanta.push_back(std::move(quantum));
  }
  transfer->record.bytes += chunk->bytes;
  if (chunk->quanta.empty()) return finish_reading(*transfer, *chunk, now);
  links_.at(transfer->link).turns.emplace_back(reservation.key, reservation.chunk);
  pump(transfer->link, now);
}

void Receiver::refuse_reservation(TransferKey key, std::uint32_t index, TimePoint now) {
  Transfer* transfer = find(key);
  Chunk* chunk = find_chunk(key, index, ChunkState::asked);
  if (transfer == nullptr || chunk == nullptr) return;
  chunk->state = ChunkState::refused;
  if (transfer->failure) return;
  chunk->refused_since = std::min(chunk->refused_since, now);
  chunk->retry_at = now + options_.reserve_retry;
  if (now - chunk->refused_since >= options_.reserve_give_up) {
    return fail(*transfer, TransferEnd::failed, {ErrorCode::resource_exhausted, "no room for the KV blocks"},
                Tell::peer);
  }
  wake_at(chunk->retry_at);
}

void Receiver::cancel(TransferKey key, const std::string& reason) {
  if (Transfer* transfer = find(key)) {
    fail(*transfer, TransferEnd::aborted, {ErrorCode::aborted, reason}, Tell::peer);
  }
}

// ---- Offers ----

Receiver::Transfer* Receiver::find(TransferKey key) {
  auto found = transfers_.find(key);
  return found == transfers_.end() ? nullptr : &found->second;
}

Receiver::Chunk* Receiver::find_chunk(TransferKey key, std::uint32_t index, ChunkState state) {
  Transfer* transfer = find(key);
  if (transfer == nullptr) return nullptr;
  auto chunk = transfer->chunks.find(index);
  return chunk == transfer->chunks.end() || chunk->second.state != state ? nullptr : &chunk->second;
}

void Receiver::on_offer(Transfer& transfer, OfferMessage message, TimePoint now) {
  if (message.ticket != transfer.ticket) {  // ours has been verified; another one must say the same
    auto ticket = protocol::check_ticket(local_.ticket_key, message.ticket);
    if (!ticket || ticket->transfer != transfer.key.transfer || ticket->attempt != transfer.key.attempt ||
        ticket->prefill != transfer.peer || ticket->decode != local_.instance || !ticket_clock_.admit(*ticket, now)) {
      ++out_.gauges.messages_bad;
      return;
    }
  }
  const bool beyond =
      message.chunk >= options_.chunks_max || (transfer.last_chunk && message.chunk > *transfer.last_chunk);
  const std::uint32_t remote_blocks = links_.at(transfer.link).remote_blocks;
  const bool outside = std::ranges::any_of(message.blocks, [&](BlockIndex b) { return b >= remote_blocks; });
  if (beyond || outside) {
    return fail(transfer, TransferEnd::failed, {ErrorCode::data_loss, "an offer is out of bounds"}, Tell::peer);
  }
  auto [entry, fresh] = transfer.chunks.try_emplace(message.chunk);
  Chunk& chunk = entry->second;
  if (chunk.state != ChunkState::assembling) {
    ++out_.gauges.messages_ignored;
    return;
  }
  if (fresh) chunk.offered_at = now;
  if (transfer.first_offer_at == TimePoint{}) transfer.first_offer_at = now;
  if (message.last) transfer.last_chunk = message.chunk;
  chunk.parts.insert_or_assign(message.part, std::move(message));
  announce(transfer, now);
}

/// Joins the parts of the chunk's offer once all are here. False if not, or if they make no sense (the transfer fails).
bool Receiver::assemble(Transfer& transfer, Chunk& chunk) {
  if (chunk.parts.empty() || chunk.parts.size() < chunk.parts.begin()->second.parts) return false;
  OfferMessage whole = std::move(chunk.parts.begin()->second);
  bool agree = whole.part == 0;
  for (auto part = std::next(chunk.parts.begin()); part != chunk.parts.end(); ++part) {
    const OfferMessage& next = part->second;
    agree &= next.parts == whole.parts && next.token_begin == whole.token_begin && next.token_end == whole.token_end &&
             next.last == whole.last;
    whole.blocks.insert(whole.blocks.end(), next.blocks.begin(), next.blocks.end());
    whole.hashes.insert(whole.hashes.end(), next.hashes.begin(), next.hashes.end());
  }
  chunk.parts.clear();
  auto previous = whole.chunk == 0 ? transfer.chunks.end() : transfer.chunks.find(whole.chunk - 1);
  agree &= previous == transfer.chunks.end() || previous->second.offer.token_end == whole.token_begin;
  agree &= whole.hashes.size() <= whole.blocks.size();
  if (!agree) {
    fail(transfer, TransferEnd::failed, {ErrorCode::data_loss, "the offers do not fit together"}, Tell::peer);
    return false;
  }
  chunk.offer = std::move(whole);
  return true;
}

void Receiver::announce(Transfer& transfer, TimePoint now) {
  for (;;) {
    auto entry = transfer.chunks.find(transfer.next_announce);
    if (entry == transfer.chunks.end() || !assemble(transfer, entry->second)) return;
    ++transfer.next_announce;
    ++transfer.record.chunks;
    if (entry->second.offer.last) transfer.last_offer_at = now;
    ask(transfer, entry->second);
  }
}

void Receiver::ask(Transfer& transfer, Chunk& chunk) {
  chunk.state = ChunkState::asked;
  const OfferMessage& offer = chunk.offer;
  out_.emit(ReserveBlocks{transfer.key, offer.chunk, offer.token_begin, offer.token_end, offer.hashes});
}

// ---- Reads, validation, commit ----

void Receiver::on_read_done(LinkId link, ReadId read, const Result<void>& result, TimePoint now) {
  auto found = reads_.find(read);
  if (found == reads_.end() || found->second.link != link) return;
  const ReadInFlight done = found->second;
  reads_.erase(found);
  auto owner = links_.find(link);
  if (owner != links_.end()) {
    owner->second.bytes_in_flight -= done.bytes;
    --owner->second.reads;
    owner->second.progress_at = now;
    // Over a slow network answers to pings queue behind the bytes of the window.
    if (result) owner->second.heard_at = now;
  }
  if (Transfer* transfer = find(done.key)) {
    Chunk& chunk = transfer->chunks.at(done.chunk);
    --chunk.reads;
    transfer->last_read_at = now;
    if (transfer->failure) {
      if (chunk.reads == 0 && chunk.state == ChunkState::reading) {
        chunk.state = ChunkState::discarded;
        out_.emit(ChunkDiscarded{done.key, done.chunk});
      }
      finish_if_closed(*transfer);
    } else if (!result) {
      fail(*transfer, TransferEnd::failed, result.error(), Tell::peer);
    } else if (chunk.reads == 0 && chunk.quanta.empty()) {
      finish_reading(*transfer, chunk, now);
    }
  }
  pump(link, now);
  forget_if_idle(link);
}

void Receiver::finish_reading(Transfer& transfer, Chunk& chunk, TimePoint now) {
  chunk.state = ChunkState::done;
  chunk.retry_at = now + options_.resend;
  wake_at(chunk.retry_at);
  out_.send(transfer.link, transfer.peer, transfer.key, DoneMessage{chunk.offer.chunk, chunk.bytes});
}

void Receiver::on_done_ack(Transfer& transfer, const DoneAckMessage& message, TimePoint now) {
  Chunk* chunk = find_chunk(transfer.key, message.chunk, ChunkState::done);
  if (chunk == nullptr) {
    ++out_.gauges.messages_ignored;
    return;
  }
  if (!message.valid) {
    return fail(transfer, TransferEnd::invalid, {ErrorCode::aborted, "the pins did not hold until the read was done"},
                Tell::peer);
  }
  chunk->state = ChunkState::validated;
  commit(transfer, now);
}

void Receiver::commit(Transfer& transfer, TimePoint now) {
  for (;;) {
    auto entry = transfer.chunks.find(transfer.next_commit);
    if (entry == transfer.chunks.end() || entry->second.state != ChunkState::validated) break;
    Chunk& chunk = entry->second;
    chunk.state = ChunkState::committed;
    out_.emit(ChunkCommitted{transfer.key, transfer.next_commit});
    out_.push(ChunkTimed{now - chunk.offered_at, chunk.bytes});
    ++transfer.next_commit;
  }
  if (!transfer.last_chunk || transfer.next_commit != *transfer.last_chunk + 1) return;
  const Chunk& last = transfer.chunks.at(*transfer.last_chunk);
  TransferRecord& record = transfer.record;
  record.end = TransferEnd::committed;
  if (record.bytes > 0) record.wire = transfer.last_read_at - transfer.first_read_at;
  record.offer_to_commit = now - transfer.first_offer_at;
  record.exposed = now - transfer.last_offer_at;
  out_.emit(ReceiveComplete{transfer.key, last.offer.token_end, last.offer.first_tokens, record.bytes});
  out_.push(Ended{record});
  transfers_.erase(TransferKey(transfer.key));
}

// ---- The end ----

void Receiver::fail(Transfer& transfer, TransferEnd end, Error error, Tell tell) {
  if (transfer.failure) return;
  auto link = links_.find(transfer.link);
  if (tell == Tell::peer && link != links_.end() && link->second.state == LinkState::up) {
    out_.send(transfer.link, transfer.peer, transfer.key, ReleaseMessage{error.message});
  }
  transfer.failure = ReceiveFailed{transfer.key, end, std::move(error)};
  for (auto& [index, chunk] : transfer.chunks) {
    chunk.quanta.clear();
    const bool reserved =
        chunk.state == ChunkState::reading || chunk.state == ChunkState::done || chunk.state == ChunkState::validated;
    if (!reserved || chunk.reads > 0) continue;
    chunk.state = ChunkState::discarded;
    out_.emit(ChunkDiscarded{transfer.key, index});
  }
  finish_if_closed(transfer);
}

bool Receiver::only_answers_missing(const Transfer& transfer) const {
  if (!transfer.last_chunk || transfer.next_announce != *transfer.last_chunk + 1) return false;
  return std::ranges::all_of(transfer.chunks, [](const auto& entry) {
    const ChunkState state = entry.second.state;
    return state == ChunkState::done || state == ChunkState::validated || state == ChunkState::committed;
  });
}

/// Gives the last event once no read of the transfer is under way. The transfer is gone after it.
void Receiver::finish_if_closed(Transfer& transfer) {
  if (!transfer.failure) return;
  for (const auto& [index, chunk] : transfer.chunks) {
    if (chunk.reads > 0) return;
  }
  transfer.record.end = transfer.failure->end;
  out_.emit(std::move(*transfer.failure));
  out_.push(Ended{transfer.record});
  transfers_.erase(TransferKey(transfer.key));
}

void Receiver::tick_transfer(Transfer& transfer, TimePoint now) {
  if (transfer.failure) return;
  if (transfer.expires <= now) {
    return fail(transfer, TransferEnd::failed, {ErrorCode::deadline_exceeded, "the KV did not come in time"},
                Tell::peer);
  }
  wake_at(transfer.expires);
  for (auto& [index, chunk] : transfer.chunks) {
    const bool waits = chunk.state == ChunkState::refused || chunk.state == ChunkState::done;
    if (!waits) continue;
    if (chunk.retry_at <= now && chunk.state == ChunkState::refused) {
      ask(transfer, chunk);
    } else if (chunk.retry_at <= now) {
      finish_reading(transfer, chunk, now);  // DONE again
    } else {
      wake_at(chunk.retry_at);
    }
  }
}

}  // namespace penstock::worker::transfer
