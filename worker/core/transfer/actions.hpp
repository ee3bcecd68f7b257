// What the state machine wants done, as values, in order; and the small tools that its two sides share. Pure.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/base/bytes.hpp"
#include "common/base/id.hpp"
#include "common/time/clock.hpp"
#include "worker/core/transfer/record.hpp"
#include "worker/core/transfer/wire.hpp"
#include "worker/engine/kv_transfer.hpp"
#include "worker/engine/kv_transport.hpp"

namespace penstock::worker::transfer {

using LinkId = EndpointId;  // one connection to one peer in one direction; never reused; 0 is none

/// D: open a control channel to `address` and send `hello`; the answer comes to on_dial_reply() or on_channel_closed().
struct Dial {
  LinkId link = 0;
  std::string address;
  base::Bytes hello;
};
struct Connect {  // make the transport's endpoint; on_link_failed() if that fails
  LinkId link = 0;
  base::Bytes peer_address;
};
struct Send {
  LinkId link = 0;
  base::Bytes bytes;
};
struct Read {
  LinkId link = 0;
  ReadId read = 0;
  std::vector<ReadRun> runs;
};
struct Close {  // endpoint (by force) and control channel; reads in flight end by on_read_done()
  LinkId link = 0;
};
struct Emit {
  TransferEvent event;
};
struct Ended {
  TransferRecord record;
};
struct ChunkTimed {
  Duration offer_to_commit{};
  std::uint64_t bytes = 0;
};
struct Heartbeat {
  Duration round_trip{};
};
struct Note {
  const char* what = "";
  std::string detail;
};
using Action = std::variant<Dial, Connect, Send, Read, Close, Emit, Ended, ChunkTimed, Heartbeat, Note>;

/// Who we are; fixed at start.
struct LocalNode {
  InstanceId instance;
  std::string fingerprint;
  std::string transport;
  std::string ticket_key;
  std::uint32_t pool_blocks = 0;
  std::uint64_t block_bytes = 0;
  base::Bytes address;  // KvTransport::local_address()
};

/// Collects actions and hands out link and read ids for both sides.
class Outbox {
 public:
  explicit Outbox(const LocalNode& local) : local_(local) {}

  void push(Action action) { actions_.push_back(std::move(action)); }
  void emit(TransferEvent event) { push(Emit{std::move(event)}); }
  void note(const char* what, std::string detail) { push(Note{what, std::move(detail)}); }
  base::Bytes message(InstanceId peer, TransferKey key, Message message) {
    return encode({local_.instance, peer, key, ++sequence_, std::move(message)});
  }
  void send(LinkId link, InstanceId peer, TransferKey key, Message body) {
    push(Send{link, message(peer, key, std::move(body))});
  }
  LinkId new_link() { return ++link_; }
  ReadId new_read() { return ++read_; }
  std::vector<Action> take() { return std::exchange(actions_, {}); }

  TransferGauges gauges;

 private:
  const LocalNode& local_;
  std::vector<Action> actions_;
  std::uint32_t sequence_ = 0;
  LinkId link_ = 0;
  ReadId read_ = 0;
};

/// Deadlines by key, earliest first; setting a key again moves it, so a renewed entry never hides a later one.
template <class Key>
class DeadlineSet {
 public:
  void set(const Key& key, TimePoint old_time, TimePoint time) {
    entries_.erase({old_time, key});
    if (time != TimePoint::max()) entries_.insert({time, key});
  }
  void erase(const Key& key, TimePoint time) { entries_.erase({time, key}); }
  TimePoint next() const { return entries_.empty() ? TimePoint::max() : entries_.begin()->first; }
  const Key& first() const { return entries_.begin()->second; }

 private:
  std::set<std::pair<TimePoint, Key>> entries_;
};

struct KeyOrder {
  bool operator()(const TransferKey& left, const TransferKey& right) const {
    return std::pair(left.transfer, left.attempt) < std::pair(right.transfer, right.attempt);
  }
};

}  // namespace penstock::worker::transfer
