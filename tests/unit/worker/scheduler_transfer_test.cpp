// Disaggregated against aggregated: a prefill and a decode scheduler over two pools, joined by a port that copies
// blocks.
#include <gtest/gtest.h>

#include <cstring>
#include <deque>

#include "tests/unit/worker/scheduler_harness.hpp"

namespace penstock::worker {
namespace {

enum class Fault : std::uint8_t { none, lose_second_chunk, corrupt };

struct Pair {
  explicit Pair(SchedulerConfig config, Fault wanted = Fault::none)
      : fault(wanted), p(with_transfer(config), small_model()), d(with_transfer(config), small_model(40)) {}

  static SchedulerConfig with_transfer(SchedulerConfig config) {
    config.transfer = true;
    return config;
  }

  void send(const protocol::GenerateSpec& spec) {
    protocol::TransferRoute route;
    route.transfer = {9, spec.request.low};
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
      if (auto* chunk = std::get_if<OfferChunk>(&action)) offers.push_back(std::move(*chunk));
      if (auto* cancel = std::get_if<CancelTransfer>(&action)) {
        p.scheduler->on_transfer(SendEnded{cancel->key, TransferEnd::aborted, cancel->reason, 0}, p.now);
      }
    }
    for (auto& action : std::exchange(d.actions, {})) {
      if (auto* cancel = std::get_if<CancelTransfer>(&action)) {
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
};

TEST(SchedulerTransfer, DisaggregatedEqualsAggregated) {
  for (const bool cache : {false, true}) {
    for (const std::size_t length : {1u, 3u, 4u, 5u, 16u, 29u}) {
      for (const std::uint32_t chunk : {3u, 4u, 16u}) {
        SchedulerConfig config;
        config.prefix_cache = cache;
        config.prefill_chunk_tokens_max = chunk;
        Pair pair(config);
        for (std::uint64_t id = 1; id <= 3; ++id) {  // the later ones find the prompt cached on both sides
          const auto spec = request_of(id, prompt_of(length), 9, id == 2 ? 3 : 1);
          pair.send(spec);
          pair.run();
          for (const auto& choice : spec.choices) {
            EXPECT_EQ(pair.stream(spec, choice.index), truth(pair.p.model, spec, choice.index))
                << length << " " << chunk;
          }
          EXPECT_EQ(pair.p.ends[spec.request], 1);
          EXPECT_EQ(pair.d.ends[spec.request], 1);
        }
        pair.expect_clean();
      }
    }
  }
}

TEST(SchedulerTransfer, ManyAtOnceInASmallPoolAllEnd) {
  SchedulerConfig config;
  config.prefill_chunk_tokens_max = 8;
  Pair pair(config);
  std::vector<protocol::GenerateSpec> specs;
  for (std::uint64_t id = 1; id <= 8; ++id) {
    specs.push_back(request_of(id, prompt_of(17 + id, static_cast<TokenId>(id)), 12));
    pair.send(specs.back());
  }
  pair.run();
  for (const auto& spec : specs) {
    if (pair.p.errors.contains(spec.request)) {
      EXPECT_EQ(pair.p.errors[spec.request].code, ErrorCode::resource_exhausted);
      pair.d.scheduler->abort({spec.request, {}, 0, "refused by the prefill worker"});
      continue;
    }
    EXPECT_EQ(pair.stream(spec, 0), truth(pair.p.model, spec, 0));
  }
  pair.pump();
  pair.run();
  pair.expect_clean();
}

TEST(SchedulerTransfer, ALostTransferEndsBothSidesAndKeepsTheCommittedChunk) {
  SchedulerConfig config;
  config.prefill_chunk_tokens_max = 8;
  Pair pair(config, Fault::lose_second_chunk);
  const auto spec = request_of(1, prompt_of(20), 5);
  pair.send(spec);
  pair.run();
  EXPECT_EQ(pair.d.errors[spec.request].code, ErrorCode::unavailable);
  EXPECT_EQ(pair.d.ends[spec.request], 1);
  EXPECT_EQ(pair.p.ends[spec.request], 1);
  EXPECT_EQ(pair.d.scheduler->cache().cached(), 2u);
  pair.expect_clean();
}

TEST(SchedulerTransfer, ACorruptBlockWouldShow) {
  Pair pair({}, Fault::corrupt);
  const auto spec = request_of(1, prompt_of(20), 5);
  pair.send(spec);
  pair.run();
  EXPECT_NE(pair.stream(spec, 0), truth(pair.p.model, spec, 0)) << "the checker must see what it is there to see";
}

TEST(SchedulerTransfer, AbortAtAnyStepFreesBothSides) {
  for (int at = 0; at < 12; ++at) {
    SchedulerConfig config;
    config.prefill_chunk_tokens_max = 8;
    Pair pair(config);
    const auto spec = request_of(1, prompt_of(30), 6, 2);
    pair.send(spec);
    pair.run(at);
    pair.p.scheduler->abort({spec.request, {}, 0, "gone"});
    pair.d.scheduler->abort({spec.request, {}, 0, "gone"});
    pair.p.collect();
    pair.d.collect();
    pair.pump();
    pair.run();
    EXPECT_EQ(pair.p.ends[spec.request], 1) << at;
    EXPECT_EQ(pair.d.ends[spec.request], 1) << at;
    pair.expect_clean();
  }
}

}  // namespace
}  // namespace penstock::worker
