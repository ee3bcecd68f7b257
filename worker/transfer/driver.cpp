#include "worker/transfer/driver.hpp"

namespace penstock::worker::transfer {

TransferDriver::TransferDriver(const TransferOptions& options, LocalNode local, KvTransport& transport,
                               ControlPlane& control, OnEvent on_event, const Clock& clock, TransferProbe& probe,
                               std::uint64_t seed)
    : machine_(options, std::move(local), seed),
      transport_(transport),
      control_(control),
      on_event_(std::move(on_event)),
      clock_(clock),
      probe_(probe) {}

void TransferDriver::carry_out(TimePoint now) {
  now_ = now;
  for (auto actions = machine_.take_actions(); !actions.empty(); actions = machine_.take_actions()) {
    for (Action& action : actions) perform(action, now);
  }
}

void TransferDriver::perform(Action& action, TimePoint) {
  struct Visitor {
    TransferDriver& self;
    void operator()(Dial& dial) const { self.control_.dial(dial.link, dial.address, std::move(dial.hello)); }
    void operator()(Connect& connect) const {
      auto made = self.transport_.connect(connect.link, connect.peer_address);
      if (!made) self.broken_.emplace_back(connect.link, made.error().message);
    }
    void operator()(Send& send) const {
      auto sent = self.transport_.send(send.link, send.bytes);
      if (!sent) self.broken_.emplace_back(send.link, sent.error().message);
    }
    void operator()(Read& read) const { self.post_read(read); }
    void operator()(Close& close) const {
      self.transport_.force_close(close.link);
      self.read_links_.erase(close.link);
      self.control_.close(close.link);
    }
    void operator()(Emit& emit) const { self.on_event_(std::move(emit.event)); }
    void operator()(Ended& ended) const { self.probe_.on_transfer_ended(ended.record); }
    void operator()(ChunkTimed& chunk) const { self.probe_.on_chunk_committed(chunk.offer_to_commit, chunk.bytes); }
    void operator()(Heartbeat& heartbeat) const { self.probe_.on_heartbeat(heartbeat.round_trip); }
    void operator()(Note& note) const { self.probe_.on_note(note.what, note.detail); }
  };
  std::visit(Visitor{*this}, action);
}

void TransferDriver::post_read(Read& read) {
  const TimePoint begin = clock_.now();
  if (!transport_.post_read(read.link, read.read, read.runs)) {
    refused_reads_.emplace_back(read.link, read.read);
    return;
  }
  probe_.on_reads_posted(clock_.now() - begin, static_cast<std::uint32_t>(read.runs.size()));
  std::uint64_t bytes = 0;
  for (const ReadRun& run : read.runs) bytes += run.bytes;
  const KvLane lane = transport_.lane(read.link);
  probe_.on_bytes_asked(lane, bytes);
  if (!read_links_.insert(read.link).second) return;
  const std::string reason = transport_.lane_reason(read.link);
  probe_.on_note("kv lane", std::string(to_string(lane)) + (reason.empty() ? "" : ": " + reason));
}

HelloResult TransferDriver::on_hello(base::BytesView frame, TimePoint now) {
  HelloResult result = machine_.on_hello(frame, now);
  carry_out(now);
  return result;
}

void TransferDriver::on_dial_reply(LinkId link, base::BytesView reply, TimePoint now) {
  machine_.receiver().on_dial_reply(link, reply, now);
  carry_out(now);
}

void TransferDriver::on_dial_refused(LinkId link, const std::string& why, TimePoint now) {
  machine_.receiver().on_dial_refused(link, why, now);
  carry_out(now);
}

void TransferDriver::on_channel_closed(LinkId link, const std::string& why, TimePoint now) {
  machine_.on_link_lost(link, why, now);
  carry_out(now);
}

std::size_t TransferDriver::poll(TimePoint now) {
  now_ = now;
  std::size_t work = transport_.progress(*this);
  for (const auto& [link, read] : std::exchange(refused_reads_, {})) {
    machine_.receiver().on_read_done(link, read, make_error(ErrorCode::unavailable, "the read could not be posted"),
                                     now);
    ++work;
  }
  for (const auto& [link, why] : std::exchange(broken_, {})) {
    machine_.on_link_lost(link, why, now);
    ++work;
  }
  machine_.tick(now);
  carry_out(now);
  return work;
}

void TransferDriver::on_message(base::BytesView message) {
  machine_.on_message(message, now_);
}

void TransferDriver::on_read_done(EndpointId endpoint, ReadId read, Result<void> result) {
  machine_.receiver().on_read_done(endpoint, read, result, now_);
}

void TransferDriver::on_endpoint_error(EndpointId endpoint, const Error& error) {
  broken_.emplace_back(endpoint, error.message);
}

}  // namespace penstock::worker::transfer
