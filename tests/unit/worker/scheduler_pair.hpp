// A prefill and a decode scheduler over two pools, joined by a port that copies blocks. The test is the KV transfer
// service: it says what reaches whom.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <deque>

#include "tests/unit/worker/scheduler_harness.hpp"

namespace penstock::worker {

enum class Fault : std::uint8_t { none, lose_second_chunk, corrupt };

struct Pair {
  explicit Pair(SchedulerConfig config, Fault wanted = Fault::none, std::uint32_t d_blocks = 40)
      : fault(wanted), p(with_transfer(config), small_model()), d(with_transfer(config), small_model(d_blocks)) {}

  static SchedulerConfig with_transfer(SchedulerConfig config) {
    config.transfer = true;
    return config;
  }

  static protocol::TransferRoute route_of(const protocol::GenerateSpec& spec, std::uint32_t attempt = 0) {
    protocol::TransferRoute route;
    route.transfer = {9, spec.request.low};
    route.attempt = attempt;
    return route;
  }

  void send(const protocol::GenerateSpec& spec) {
    const protocol::TransferRoute route = route_of(spec);
    for (const auto& choice : spec.choices) d.first_position[{spec.request, choice.index}] = 1;
    d.scheduler->expect({spec, route}, d.now);
    p.scheduler->prefill({spec, route}, p.now);
    d.collect();
    p.collect();
  }

  void copy(const OfferChunk& offer, const Reservation& to) {
    const KvPoolView from_pool = p.executor.kv_pool(), to_pool = d.executor.kv_pool();
    const std::size_t bytes = from_pool.geometry.block_bytes();
    for (std::size_t i = 0; i < to.local.size(); ++i) {
      if (to.skip[i]) continue;
      std::memcpy(to_pool.base + to.local[i] * bytes, from_pool.base + offer.blocks[i] * bytes, bytes);
      if (fault == Fault::corrupt) to_pool.base[to.local[i] * bytes] ^= std::byte{1};
    }
  }

  void pump() {
    for (auto& action : std::exchange(p.actions, {})) {
      if (auto* chunk = std::get_if<OfferChunk>(&action)) {
        offered[chunk->key.transfer].push_back(*chunk);
        if (!peer_is_gone) offers.push_back(std::move(*chunk));
      }
      if (const auto* again = std::get_if<ReofferSend>(&action)) {
        peer_is_gone = false;
        for (OfferChunk chunk : offered[again->route.transfer]) {
          chunk.key.attempt = again->route.attempt;
          offers.push_back(std::move(chunk));
        }
      }
      if (auto* cancel = std::get_if<CancelTransfer>(&action)) {
        drop_offers(cancel->key.transfer);
        p.scheduler->on_transfer(SendEnded{cancel->key, TransferEnd::aborted, cancel->reason, 0}, p.now);
      }
    }
    for (auto& action : std::exchange(d.actions, {})) {
      if (auto* cancel = std::get_if<CancelTransfer>(&action)) {
        drop_offers(cancel->key.transfer);
        d.scheduler->on_transfer(ReceiveFailed{cancel->key, TransferEnd::aborted, {}}, d.now);
        p.scheduler->on_transfer(SendEnded{cancel->key, TransferEnd::aborted, "peer", 0}, p.now);
      }
    }
    const std::size_t count = offers.size();
    for (std::size_t i = 0; i < count; ++i) {
      const OfferChunk offer = std::move(offers.front());
      offers.pop_front();
      deliver(offer);
    }
    p.collect();
    d.collect();
  }

  /// The services on both sides forget an ended transfer.
  void drop_offers(TransferId transfer) {
    std::erase_if(offers, [&](const OfferChunk& offer) { return offer.key.transfer == transfer; });
  }

  void deliver(const OfferChunk& offer) {
    if (fault == Fault::lose_second_chunk && offer.chunk == 1) {
      d.scheduler->on_transfer(ReceiveFailed{offer.key, TransferEnd::expired, {ErrorCode::unavailable, "lost"}}, d.now);
      p.scheduler->on_transfer(SendEnded{offer.key, TransferEnd::expired, "lost", 0}, p.now);
      return;
    }
    d.scheduler->on_transfer(ReserveBlocks{offer.key, offer.chunk, offer.token_begin, offer.token_end, offer.hashes},
                             d.now);
    d.collect();
    for (auto& action : std::exchange(d.actions, {})) {
      if (std::holds_alternative<RefuseReservation>(action)) offers.push_back(offer);  // asked again later
      if (auto* reservation = std::get_if<Reservation>(&action)) {
        copy(offer, *reservation);
        d.scheduler->on_transfer(ChunkCommitted{offer.key, offer.chunk}, d.now);
        p.scheduler->on_transfer(ChunkReleased{offer.key, offer.chunk, TransferEnd::committed}, p.now);
        if (!offer.last) continue;
        d.scheduler->on_transfer(ReceiveComplete{offer.key, offer.token_end, offer.first_tokens, 1}, d.now);
        p.scheduler->on_transfer(SendEnded{offer.key, TransferEnd::committed, "", 1}, p.now);
      }
    }
  }

  void run(int steps_max = 2000) {
    for (int i = 0; i < steps_max; ++i) {
      const bool moved = p.step();
      pump();
      if (!d.step() && !moved && offers.empty() && p.actions.empty() && d.actions.empty()) return;
      pump();
    }
  }

  std::vector<TokenId> stream(const protocol::GenerateSpec& spec, std::uint32_t choice) {
    auto tokens = p.streams[{spec.request, choice}];
    const auto& rest = d.streams[{spec.request, choice}];
    tokens.insert(tokens.end(), rest.begin(), rest.end());
    return tokens;
  }

  void expect_clean() {
    for (Node* node : {&p, &d}) {
      EXPECT_EQ(node->scheduler->cache().available(), node->config.blocks);
      EXPECT_EQ(node->scheduler->cache().pinned(), 0u);
    }
  }

  Fault fault;
  Node p, d;
  std::deque<OfferChunk> offers;
  std::map<TransferId, std::vector<OfferChunk>> offered;  // all so far
  bool peer_is_gone = false;                              // offers reach nobody until a reoffer
};

}  // namespace penstock::worker
