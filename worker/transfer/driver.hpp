// Carries the protocol machine's actions out on a transport and a control plane, and feeds it what comes back.
// Synchronous; time is an argument. The service drives it with Asio channels, tests and simulations with their own.
// Owner: one thread. Bounds: those of the machine.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "worker/core/transfer/machine.hpp"
#include "worker/engine/kv_transport.hpp"
#include "worker/transfer/probe.hpp"

namespace penstock::worker::transfer {

/// Worker-to-worker control channels: HELLO and its answer, then kept open, since their end tells of a dead peer at
/// once.
class ControlPlane {
 public:
  virtual ~ControlPlane() = default;
  virtual void dial(LinkId link, const std::string& address, base::Bytes hello) = 0;
  virtual void close(LinkId link) = 0;
};

class TransferDriver final : private KvTransportEvents {
 public:
  using OnEvent = std::function<void(TransferEvent event)>;

  /// References outlive the driver.
  TransferDriver(const TransferOptions& options, LocalNode local, KvTransport& transport, ControlPlane& control,
                 OnEvent on_event, const Clock& clock, TransferProbe& probe, std::uint64_t seed);

  TransferMachine& machine() { return machine_; }
  /// After any direct call on the machine.
  void carry_out(TimePoint now);

  /// A peer's first frame on a new channel. The caller sends the reply and, if there is a link, keeps the channel for
  /// it.
  HelloResult on_hello(base::BytesView frame, TimePoint now);
  void on_dial_reply(LinkId link, base::BytesView reply, TimePoint now);
  void on_dial_refused(LinkId link, const std::string& why, TimePoint now);
  void on_channel_closed(LinkId link, const std::string& why, TimePoint now);

  /// Transport progress and due timers. Returns how much was done.
  std::size_t poll(TimePoint now);

 private:
  void on_message(base::BytesView message) override;
  void on_read_done(EndpointId endpoint, ReadId read, Result<void> result) override;
  void on_endpoint_error(EndpointId endpoint, const Error& error) override;

  void perform(Action& action, TimePoint now);
  void post_read(Read& read);

  TransferMachine machine_;
  KvTransport& transport_;
  ControlPlane& control_;
  OnEvent on_event_;
  const Clock& clock_;
  TransferProbe& probe_;
  std::vector<std::pair<LinkId, ReadId>> refused_reads_;  // post_read() failed: told to the machine at the next poll
  std::set<LinkId> read_links_;                           // that have been read from: their lane is told once
  std::vector<std::pair<LinkId, std::string>> broken_;    // likewise endpoints
  TimePoint now_;
};

}  // namespace penstock::worker::transfer
