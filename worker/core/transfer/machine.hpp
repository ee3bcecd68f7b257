// The KV transfer protocol of one worker: both sides behind one door. Events in, actions out; time is an argument.
// Owner: TransferDriver. Not thread-safe. After each call carry out take_actions() in order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "worker/core/transfer/actions.hpp"
#include "worker/core/transfer/options.hpp"
#include "worker/core/transfer/receiver.hpp"
#include "worker/core/transfer/sender.hpp"

namespace penstock::worker::transfer {

class TransferMachine {
 public:
  /// `seed` is for the jitter of back-offs.
  TransferMachine(const TransferOptions& options, LocalNode local, std::uint64_t seed);
  TransferMachine(const TransferMachine&) = delete;
  TransferMachine& operator=(const TransferMachine&) = delete;

  Sender& sender() { return sender_; }
  Receiver& receiver() { return receiver_; }
  void cancel(TransferKey key, const std::string& reason, TimePoint now);
  void drain();
  /// Tells every peer that this process ends; the last thing to do before the transport goes.
  void leave();

  HelloResult on_hello(base::BytesView frame, TimePoint now);
  void on_link_lost(LinkId link, const std::string& why, TimePoint now);
  void on_message(base::BytesView bytes, TimePoint now);
  void tick(TimePoint now);
  TimePoint next_deadline() const;

  std::vector<Action> take_actions() { return out_.take(); }
  TransferGauges gauges(TimePoint now) const;
  const LocalNode& local() const { return local_; }

 private:
  const TransferOptions options_;
  const LocalNode local_;
  Outbox out_;
  Sender sender_;
  Receiver receiver_;
};

}  // namespace penstock::worker::transfer
