// A small world for the KV transfer protocol: workers with a pool, an engine that obeys the contract, and a transport
// with faults, all in one thread under a manual clock. Each test moves time itself.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "common/protocol/ticket.hpp"
#include "worker/transfer/driver.hpp"
#include "worker/transfer/faulty/faulty_transport.hpp"
#include "worker/transfer/loopback/loopback_transport.hpp"

namespace penstock::worker::transfer::test {

constexpr std::uint64_t block_bytes = 256;
constexpr std::uint32_t pool_blocks = 64;
constexpr std::uint32_t block_tokens = 16;

template <class Id>
Id id_of(std::uint64_t number) {
  return Id{0x1234, number};
}

/// What a block of a transfer holds, so that any wrong byte is seen.
inline std::byte content(std::uint64_t transfer, std::uint32_t block, std::size_t offset) {
  return static_cast<std::byte>((transfer * 131 + block * 31 + offset * 7 + 1) & 0xFF);
}

inline TransferOptions fast_options() {
  TransferOptions options;
  options.lease = std::chrono::milliseconds(500);
  options.max_pin = std::chrono::seconds(3);
  options.tombstone = std::chrono::seconds(5);
  options.quantum_bytes = 4 * block_bytes;
  options.window_bytes = 12 * block_bytes;
  return options;
}

class World;

/// One worker: P or D by what the test asks of it.
class Node final : public ControlPlane {
 public:
  Node(World& world, std::uint64_t number, FaultOptions faults);

  World& world;
  InstanceId instance;
  std::string address;
  std::vector<std::byte> pool = std::vector<std::byte>(pool_blocks * block_bytes);
  std::unique_ptr<FaultyTransport> transport;
  std::unique_ptr<TransferDriver> driver;
  TransferProbe probe;
  bool alive = true;

  // The engine's side.
  std::vector<TransferEvent> log;
  std::set<BlockIndex> free_blocks;
  std::vector<std::pair<std::pair<TransferKey, std::uint32_t>, std::vector<BlockIndex>>> pins;
  std::map<TransferKey, std::map<std::uint32_t, std::vector<BlockIndex>>, KeyOrder> reserved;
  std::map<TransferKey, std::map<std::uint32_t, std::vector<BlockIndex>>, KeyOrder> committed;
  bool refuse_room = false;
  bool hold_reservations = false;  // the test answers by itself
  bool distrusts_all = false;      // whom it dials
  int dials = 0;
  bool poison_released = true;  // reuse at once what is unpinned
  std::vector<std::byte> as_offered;

  template <class Event>
  std::vector<Event> events() const {
    std::vector<Event> found;
    for (const auto& event : log) {
      if (const auto* one = std::get_if<Event>(&event)) found.push_back(*one);
    }
    return found;
  }
  /// Writes the transfer's content into fresh blocks and offers them.
  void offer(TransferKey key, std::uint32_t chunk, std::uint32_t blocks, bool last);
  void reserve(const ReserveBlocks& wanted);
  void poll();

  void dial(LinkId link, const std::string& to, base::Bytes hello) override;
  void close(LinkId link) override;

 private:
  void on_event(TransferEvent event);
};

class World {
 public:
  explicit World(FaultOptions faults = {}, TransferOptions protocol = fast_options())
      : options(protocol), faults_(faults) {
    clock.advance(std::chrono::hours(1));
  }
  TransferOptions options;
  ManualClock clock;
  LoopbackNetwork network;
  std::vector<std::unique_ptr<Node>> nodes;
  std::string ticket_key = "the key of this world";

  Node& add() {
    faults_.seed += 1000;
    nodes.push_back(std::make_unique<Node>(*this, nodes.size() + 1, faults_));
    return *nodes.back();
  }
  protocol::TransferRoute route(std::uint64_t transfer, std::uint32_t attempt, const Node& p, const Node& d,
                                const Node& peer) {
    protocol::Ticket ticket{id_of<TransferId>(transfer), attempt, p.instance, d.instance, 7, ++issued_, 60};
    return {ticket.transfer, attempt, peer.instance, peer.address, protocol::make_ticket(ticket_key, ticket)};
  }
  /// PREFILL to p and EXPECT to d.
  TransferKey begin(std::uint64_t transfer, std::uint32_t attempt, Node& p, Node& d) {
    p.driver->machine().sender().begin_send(route(transfer, attempt, p, d, d), clock.now());
    expect(transfer, attempt, p, d);
    return {id_of<TransferId>(transfer), attempt};
  }
  void expect(std::uint64_t transfer, std::uint32_t attempt, Node& p, Node& d) {
    d.driver->machine().receiver().begin_receive(route(transfer, attempt, p, d, p), std::chrono::seconds(30),
                                                 clock.now());
    d.driver->carry_out(clock.now());
  }
  /// Steps of 5 ms in which everyone polls.
  void run(Duration duration) {
    for (Duration done{}; done < duration; done += std::chrono::milliseconds(5)) {
      for (int i = 0; i < 3; ++i) {
        for (auto& node : nodes) node->poll();
      }
      clock.advance(std::chrono::milliseconds(5));
    }
  }
  void kill(Node& node) {
    node.alive = false;
    network.kill(node.transport->inner());
    for (const auto& [end, other] : other_end) {
      if (end.first == &node && other.first->alive) pending_closes.push_back(other);
    }
  }
  using ChannelEnd = std::pair<Node*, LinkId>;
  std::map<ChannelEnd, ChannelEnd> other_end;  // of every control channel
  std::vector<ChannelEnd> pending_closes;

 private:
  FaultOptions faults_;
  std::uint64_t issued_ = 1000;
};

inline Node::Node(World& w, std::uint64_t number, FaultOptions faults)
    : world(w), instance(id_of<InstanceId>(number + 100)), address("node:" + std::to_string(number)) {
  transport = std::make_unique<FaultyTransport>(std::make_unique<LoopbackTransport>(w.network), faults);
  EXPECT_TRUE(transport->register_pool({pool.data(), pool.size()}));
  LocalNode local{instance, "layout", "loopback", w.ticket_key, pool_blocks, block_bytes, *transport->local_address()};
  driver = std::make_unique<TransferDriver>(
      w.options, local, *transport, *this, [this](TransferEvent event) { on_event(std::move(event)); }, w.clock, probe,
      number);
  for (BlockIndex block = 0; block < pool_blocks; ++block) free_blocks.insert(block);
}

inline void Node::dial(LinkId link, const std::string& to, base::Bytes hello) {
  ++dials;
  if (distrusts_all) return driver->machine().receiver().on_dial_refused(link, "bad certificate", world.clock.now());
  for (auto& node : world.nodes) {
    if (node->address != to || !node->alive) continue;
    HelloResult result = node->driver->on_hello(hello, world.clock.now());
    if (result.link != 0) {
      world.other_end[{this, link}] = {node.get(), result.link};
      world.other_end[{node.get(), result.link}] = {this, link};
    }
    if (!result.reply.empty()) {
      driver->machine().receiver().on_dial_reply(link, result.reply, world.clock.now());
    } else {
      driver->machine().on_link_lost(link, "no reply", world.clock.now());
    }
    return;
  }
  driver->machine().on_link_lost(link, "connection refused", world.clock.now());
}

inline void Node::close(LinkId link) {
  auto end = world.other_end.find({this, link});
  if (end == world.other_end.end()) return;
  const World::ChannelEnd other = end->second;
  if (other.first->alive) world.pending_closes.push_back(other);
  world.other_end.erase(end);
  world.other_end.erase(other);
}

inline void Node::poll() {
  for (const auto& [node, link] : std::exchange(world.pending_closes, {})) {
    if (node->alive) node->driver->on_channel_closed(link, "channel closed", world.clock.now());
  }
  if (alive) driver->poll(world.clock.now());
}

inline void Node::offer(TransferKey key, std::uint32_t chunk, std::uint32_t blocks, bool last) {
  for (const auto& ended : events<SendEnded>()) {
    if (ended.key == key) return;  // as the engine does
  }
  OfferChunk offered;
  offered.key = key;
  offered.chunk = chunk;
  offered.token_begin = chunk * blocks * block_tokens;
  offered.token_end = offered.token_begin + blocks * block_tokens;
  offered.last = last;
  for (std::uint32_t i = 0; i < blocks; ++i) {
    const BlockIndex block = *free_blocks.begin();
    free_blocks.erase(free_blocks.begin());
    offered.blocks.push_back(block);
    offered.hashes.push_back({key.transfer.low, chunk * blocks + i});
    for (std::size_t b = 0; b < block_bytes; ++b) {
      pool[block * block_bytes + b] = content(key.transfer.low, chunk * blocks + i, b);
    }
  }
  if (last) offered.first_tokens.push_back({0, 42, false});
  pins.push_back({{key, chunk}, offered.blocks});
  driver->machine().sender().offer(std::move(offered), world.clock.now());
  driver->carry_out(world.clock.now());
}

inline void Node::reserve(const ReserveBlocks& wanted) {
  Reservation reservation{wanted.key, wanted.chunk, {}, {}};
  const std::uint32_t blocks = (wanted.token_end - wanted.token_begin + block_tokens - 1) / block_tokens;
  if (refuse_room || free_blocks.size() < blocks) {
    driver->machine().receiver().refuse_reservation(wanted.key, wanted.chunk, world.clock.now());
    return;
  }
  for (std::uint32_t i = 0; i < blocks; ++i) {
    reservation.local.push_back(*free_blocks.rbegin());
    free_blocks.erase(std::prev(free_blocks.end()));
  }
  reserved[wanted.key][wanted.chunk] = reservation.local;
  driver->machine().receiver().reserve(std::move(reservation), world.clock.now());
}

inline void Node::on_event(TransferEvent event) {
  log.push_back(event);
  const auto give_back = [&](const std::vector<BlockIndex>& blocks) {
    for (BlockIndex block : blocks) {
      if (poison_released) std::memset(&pool[block * block_bytes], 0xEE, block_bytes);
      EXPECT_TRUE(free_blocks.insert(block).second) << "a block was freed twice";
    }
  };
  if (const auto* wanted = std::get_if<ReserveBlocks>(&event)) {
    if (!hold_reservations) reserve(*wanted);
  } else if (const auto* done = std::get_if<ChunkCommitted>(&event)) {
    auto& blocks = reserved.at(done->key).at(done->chunk);
    for (std::uint32_t i = 0; i < blocks.size(); ++i) {
      for (std::size_t b = 0; b < block_bytes; ++b) {
        const auto index = static_cast<std::uint32_t>(done->chunk * blocks.size() + i);
        ASSERT_EQ(pool[blocks[i] * block_bytes + b], content(done->key.transfer.low, index, b)) << "wrong KV committed";
      }
    }
    committed[done->key][done->chunk] = blocks;
    reserved.at(done->key).erase(done->chunk);
  } else if (const auto* gone = std::get_if<ChunkDiscarded>(&event)) {
    give_back(reserved.at(gone->key).at(gone->chunk));
    reserved.at(gone->key).erase(gone->chunk);
  } else if (const auto* failed = std::get_if<ReceiveFailed>(&event)) {
    for (const auto& [chunk, blocks] : reserved[failed->key]) give_back(blocks);
    reserved.erase(failed->key);
    for (const auto& [chunk, blocks] : committed[failed->key]) give_back(blocks);
    committed.erase(failed->key);
  } else if (const auto* unpinned = std::get_if<ChunkReleased>(&event)) {
    // A reoffer keeps the pins under a new key.
    for (auto pin = pins.begin(); pin != pins.end(); ++pin) {
      if (pin->first.first.transfer != unpinned->key.transfer || pin->first.second != unpinned->chunk) continue;
      give_back(pin->second);
      pins.erase(pin);
      break;
    }
  }
}

}  // namespace penstock::worker::transfer::test
