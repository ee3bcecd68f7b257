// KV that leaves for a decode worker or comes from a prefill worker. Blocks that a peer may touch are held by the
// transfer, not by the request, until the transfer service says that it has ended.
#include <algorithm>

#include "common/base/check.hpp"
#include "worker/core/scheduler/request.hpp"

namespace penstock::worker {

Request* Scheduler::find_request(const TransferKey& key) {
  for (const auto& [id, request] : requests_) {
    if (request->key == key) return request.get();
  }
  return nullptr;
}

void Scheduler::on_transfer(const TransferEvent& event, TimePoint now) {
  PENSTOCK_CHECK(steps_under_way_ == 0);
  now_ = now;
  std::visit([this](const auto& known) { on_event(known); }, event);
}

// ---- The side that sends

// The leader's prompt is computed. The choices that follow need its last block only until they have forked; the peer
// needs all of them, with the partial one.
void Scheduler::complete_blocks(Sequence& leader) {
  const auto found = sends_.find(*leader.request->key);
  if (found == sends_.end()) return;
  SendState& send = found->second;
  extend_hashes(leader, send.total);
  send.hashes = leader.hashes;
  for (std::size_t i = send.blocks.size(); i < leader.blocks.size(); ++i) {
    cache_.retain(leader.blocks[i]);
    send.blocks.push_back(leader.blocks[i]);
  }
  send.complete = true;
}

void Scheduler::offer_progress(Request& request) {
  const auto found = sends_.find(*request.key);
  if (found == sends_.end() || found->second.cancelled) return;
  SendState& send = found->second;
  if (send.complete) {
    if (request.sequences.empty()) offer(found->first, send, send.total, true);
    return;
  }
  Sequence* leader = request.leader;
  if (!leader) return;
  const std::size_t full = leader->computed / config_.block_tokens;
  extend_hashes(*leader, leader->computed);
  send.hashes.assign(leader->hashes.begin(), leader->hashes.begin() + static_cast<std::ptrdiff_t>(full));
  for (std::size_t i = send.blocks.size(); i < full; ++i) {
    cache_.retain(leader->blocks[i]);
    send.blocks.push_back(leader->blocks[i]);
  }
  if (full * config_.block_tokens > send.offered) offer(found->first, send, full * config_.block_tokens, false);
}

void Scheduler::offer(const TransferKey& key, SendState& send, std::size_t token_end, bool last) {
  const std::size_t begin = send.offered / config_.block_tokens;
  const std::size_t end = cache_.blocks_for(token_end);
  const std::size_t full = token_end / config_.block_tokens;
  OfferChunk chunk;
  chunk.key = key;
  chunk.chunk = static_cast<std::uint32_t>(send.chunks.size());
  chunk.token_begin = static_cast<std::uint32_t>(send.offered);
  chunk.token_end = static_cast<std::uint32_t>(token_end);
  chunk.last = last;
  for (std::size_t i = begin; i < end; ++i) {
    cache_.pin(send.blocks[i]);
    chunk.blocks.push_back(send.blocks[i]);
    if (i < full) chunk.hashes.push_back(send.hashes[i]);
  }
  if (last) chunk.first_tokens = send.first_tokens;
  send.chunks.push_back({begin, end, true});
  send.offered = token_end;
  output_.actions.emplace_back(std::move(chunk));
}

void Scheduler::reoffer(const protocol::Reoffer& command) {
  const TransferKey next{command.route.transfer, command.route.attempt};
  const auto known = sends_.find(next);
  if (known != sends_.end() && known->second.request == command.request && !known->second.cancelled)
    return;  // repeated
  auto found = sends_.end();
  for (auto it = sends_.begin(); it != sends_.end(); ++it) {
    const bool is_older = it->first.transfer == next.transfer && it->first.attempt < next.attempt;
    if (is_older && !it->second.cancelled && it->second.request == command.request) found = it;
  }
  if (found == sends_.end() || known != sends_.end()) {
    output_.statuses.push_back({command.request, next.transfer, next.attempt,
                                std::string(to_string(TransferEnd::failed)), "the KV is no longer held here", 0});
    return;
  }
  if (Request* request = find_request(found->first)) request->key = next;
  auto node = sends_.extract(found);
  node.key() = next;
  SendState& send = node.mapped();
  // The new peer has nothing yet, so chunks that the old one had already taken are offered, and pinned, again.
  for (auto& chunk : send.chunks) {
    if (std::exchange(chunk.pinned, true)) continue;
    for (std::size_t i = chunk.block_begin; i < chunk.block_end; ++i) cache_.pin(send.blocks[i]);
  }
  sends_.insert(std::move(node));
  output_.actions.emplace_back(ReofferSend{command.route});
}

void Scheduler::release(const protocol::Release& command) {
  const TransferKey key{command.transfer, command.attempt};
  const auto found = sends_.find(key);
  if (found == sends_.end() || found->second.cancelled || found->second.request != command.request) return;
  if (Request* request = find_request(key)) {
    close(*request, "released");
    return;
  }
  found->second.cancelled = true;
  output_.actions.emplace_back(CancelTransfer{key, "released"});
}

void Scheduler::on_event(const ChunkReleased& event) {
  const auto found = sends_.find(event.key);
  if (found == sends_.end() || event.chunk >= found->second.chunks.size()) return;
  SendState& send = found->second;
  auto& chunk = send.chunks[event.chunk];
  if (!std::exchange(chunk.pinned, false)) return;
  for (std::size_t i = chunk.block_begin; i < chunk.block_end; ++i) cache_.unpin(send.blocks[i]);
}

void Scheduler::on_event(const SendEnded& event) {
  const auto found = sends_.find(event.key);
  if (found == sends_.end()) return;
  for (std::uint32_t i = 0; i < found->second.chunks.size(); ++i) on_event(ChunkReleased{event.key, i, event.end});
  const SendState send = std::move(found->second);
  sends_.erase(found);
  for (std::size_t i = send.blocks.size(); i > 0; --i) cache_.release(send.blocks[i - 1]);
  output_.statuses.push_back({send.request, event.key.transfer, event.key.attempt, std::string(to_string(event.end)),
                              event.detail, event.bytes});
  if (Request* request = find_request(event.key)) {
    fail(*request, make_error(ErrorCode::unavailable, "the KV transfer ended before the prefill: " + event.detail));
    return;
  }
  output_.ended.emplace_back(send.request, send.attempt);
}

// ---- The side that receives

std::optional<std::string> Scheduler::find_fault(const ReceiveState& receive, const ReserveBlocks& event) const {
  const Sequence& leader = *receive.request->leader;
  const std::uint32_t block = config_.block_tokens;
  if (event.token_begin != receive.reserved) return "a chunk comes twice";
  if (event.token_begin >= event.token_end || event.token_end > leader.tokens.size()) return "chunk outside the prompt";
  if (event.token_begin % block != 0) return "a chunk begins inside a block";
  if (event.token_end % block != 0 && event.token_end != leader.tokens.size()) return "a chunk ends inside a block";
  const std::size_t first = event.token_begin / block;
  const std::size_t full = event.token_end / block - first;
  if (event.hashes.size() != full) return "wrong number of block hashes";
  if (!std::equal(event.hashes.begin(), event.hashes.end(),
                  leader.hashes.begin() + static_cast<std::ptrdiff_t>(first))) {
    return "the peer has other blocks than this prompt's";
  }
  return std::nullopt;
}

void Scheduler::on_event(const ReserveBlocks& event) {
  const auto found = receives_.find(event.key);
  if (found == receives_.end() || !found->second.request) return;  // cancelled: the service ends it
  ReceiveState& receive = found->second;
  if (event.token_begin > receive.reserved) {  // a chunk before it was refused; both are asked for again
    output_.actions.emplace_back(RefuseReservation{event.key, event.chunk});
    return;
  }
  if (const auto fault = find_fault(receive, event)) {
    fail(*receive.request, make_error(ErrorCode::data_loss, "bad KV offer: " + *fault));
    return;
  }
  Sequence& leader = *receive.request->leader;
  const std::size_t end = cache_.blocks_for(event.token_end);
  const std::size_t missing = cache_.blocks_for(leader.tokens.size()) - leader.blocks.size();
  if (!receive.started && cache_.available() < missing + outstanding()) {
    output_.actions.emplace_back(RefuseReservation{event.key, event.chunk});
    return;
  }
  Reservation reservation{event.key, event.chunk, {}, {}};
  const std::size_t held = leader.blocks.size();
  while (leader.blocks.size() < end) {
    auto block = cache_.allocate();
    if (!block && make_room(leader)) block = cache_.allocate();
    if (!block) break;
    leader.blocks.push_back(*block);
  }
  if (leader.blocks.size() < end) {
    while (leader.blocks.size() > held) {
      cache_.release(leader.blocks.back());
      leader.blocks.pop_back();
    }
    output_.actions.emplace_back(RefuseReservation{event.key, event.chunk});
    return;
  }
  receive.started = true;
  for (std::size_t i = event.token_begin / config_.block_tokens; i < end; ++i) {
    reservation.local.push_back(leader.blocks[i]);
    reservation.skip.push_back(i < receive.matched);
  }
  receive.reserved = event.token_end;
  receive.chunks.push_back({event.chunk, event.token_end, false});
  output_.actions.emplace_back(std::move(reservation));
}

void Scheduler::on_event(const ChunkCommitted& event) {
  const auto found = receives_.find(event.key);
  if (found == receives_.end()) return;
  ReceiveState& receive = found->second;
  for (auto& chunk : receive.chunks) chunk.committed |= chunk.index == event.chunk;
  if (!receive.request) return;
  Sequence& leader = *receive.request->leader;
  for (const auto& chunk : receive.chunks) {
    if (!chunk.committed) break;
    leader.computed = std::max(leader.computed, chunk.token_end);
  }
  commit_blocks(leader);
}

// Its blocks are freed with the rest, when the transfer has failed as a whole.
void Scheduler::on_event(const ChunkDiscarded&) {}

void Scheduler::on_event(const ReceiveComplete& event) {
  auto node = receives_.extract(event.key);
  if (node.empty()) return;
  const ReceiveState receive = std::move(node.mapped());
  for (std::size_t i = receive.orphans.size(); i > 0; --i) cache_.release(receive.orphans[i - 1]);
  if (!receive.request) return;
  Request& request = *receive.request;
  Sequence& leader = *request.leader;
  leader.state = SequenceState::waiting;
  if (leader.computed != leader.tokens.size() || event.token_end != leader.tokens.size()) {
    fail(request, make_error(ErrorCode::internal, "the KV transfer ended as complete with chunks missing"));
    return;
  }
  output_.statuses.push_back({request.spec.request, event.key.transfer, event.key.attempt,
                              std::string(to_string(TransferEnd::committed)), "", event.bytes});
  leader.transferred_tokens = static_cast<std::uint32_t>(leader.tokens.size() - receive.matched * config_.block_tokens);
  leader.cached_tokens = static_cast<std::uint32_t>(leader.prompt);
  start_received(request, event);
}

// Every choice goes on behind the first token that the prefill worker drew and sent to the client.
void Scheduler::start_received(Request& request, const ReceiveComplete& event) {
  Sequence& leader = *request.leader;
  fork_followers(leader, leader.tokens.size());
  std::vector<Sequence*> ended;
  bool is_valid = true;
  for (const auto& sequence : request.sequences) {
    const auto first = std::find_if(event.first_tokens.begin(), event.first_tokens.end(),
                                    [&](const FirstToken& token) { return token.choice == sequence->choice; });
    if (first == event.first_tokens.end() || first->finished) {
      ended.push_back(sequence.get());
      continue;
    }
    is_valid &= first->token < config_.vocabulary_size && sequence->output() < request.output_limit;
    sequence->tokens.push_back(first->token);
    if (sequence.get() == &leader) enqueue(leader, now_);
  }
  if (!is_valid) {
    fail(request, make_error(ErrorCode::data_loss, "the prefill worker sent a token that cannot be"));
    return;
  }
  for (Sequence* sequence : ended) drop_sequence(*sequence);
  if (request.sequences.empty()) complete(request);
}

void Scheduler::on_event(const ReceiveFailed& event) {
  auto node = receives_.extract(event.key);
  if (node.empty()) return;
  const ReceiveState receive = std::move(node.mapped());
  for (std::size_t i = receive.orphans.size(); i > 0; --i) cache_.release(receive.orphans[i - 1]);
  if (!receive.request) return;
  Request& request = *receive.request;
  output_.statuses.push_back({request.spec.request, event.key.transfer, event.key.attempt,
                              std::string(to_string(event.end)), event.error.message, 0});
  // Nothing reads into the blocks any more; they are the leader's alone.
  request.leader->state = SequenceState::waiting;
  fail(request, make_error(ErrorCode::unavailable, "the KV transfer failed: " + event.error.message));
}

}  // namespace penstock::worker
