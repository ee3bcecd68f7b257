#include "worker/core/transfer/machine.hpp"

#include <algorithm>

namespace penstock::worker::transfer {
namespace {

enum class Addressee : std::uint8_t { sender, receiver, both };

Addressee by(LinkRole from) {
  return from == LinkRole::receiver ? Addressee::sender : Addressee::receiver;
}

struct Route {
  Addressee operator()(const WantMessage&) const { return Addressee::sender; }
  Addressee operator()(const DoneMessage&) const { return Addressee::sender; }
  Addressee operator()(const RenewMessage&) const { return Addressee::sender; }
  Addressee operator()(const ReleaseMessage&) const { return Addressee::sender; }
  Addressee operator()(const PingMessage& message) const { return by(message.from); }
  Addressee operator()(const PongMessage& message) const { return by(message.from); }
  Addressee operator()(const GoodbyeMessage& message) const { return by(message.from); }
  Addressee operator()(const UnknownInstanceMessage&) const { return Addressee::both; }
  template <class Other>
  Addressee operator()(const Other&) const {
    return Addressee::receiver;
  }
};

}  // namespace

TransferMachine::TransferMachine(const TransferOptions& options, LocalNode local, std::uint64_t seed)
    : options_(options),
      local_(std::move(local)),
      out_(local_),
      sender_(options_, local_, out_),
      receiver_(options_, local_, out_, seed) {}

void TransferMachine::cancel(TransferKey key, const std::string& reason, TimePoint now) {
  sender_.cancel(key, reason, now);
  receiver_.cancel(key, reason);
}

void TransferMachine::drain() {
  sender_.drain();
  receiver_.drain();
}

void TransferMachine::leave() {
  sender_.leave();
  receiver_.leave();
}

HelloResult TransferMachine::on_hello(base::BytesView frame, TimePoint now) {
  auto envelope = decode(frame);
  if (envelope) return sender_.on_hello(*envelope, now);
  ++out_.gauges.messages_bad;
  return {};
}

void TransferMachine::on_link_lost(LinkId link, const std::string& why, TimePoint now) {
  sender_.on_link_lost(link, why, now);
  receiver_.on_link_lost(link, why, now);
}

void TransferMachine::on_message(base::BytesView bytes, TimePoint now) {
  auto envelope = decode(bytes);
  if (!envelope) {
    ++out_.gauges.messages_bad;
    return;
  }
  const Addressee addressee = std::visit(Route{}, envelope->message);
  if (addressee != Addressee::receiver) sender_.on_message(*envelope, now);
  if (addressee != Addressee::sender) receiver_.on_message(*envelope, now);
}

void TransferMachine::tick(TimePoint now) {
  sender_.tick(now);
  receiver_.tick(now);
}

TimePoint TransferMachine::next_deadline() const {
  return std::min(sender_.next_deadline(), receiver_.next_deadline());
}

TransferGauges TransferMachine::gauges(TimePoint now) const {
  TransferGauges gauges = out_.gauges;
  sender_.fill(gauges, now);
  receiver_.fill(gauges);
  gauges.links_up = sender_.links_up() + receiver_.links_up();
  return gauges;
}

}  // namespace penstock::worker::transfer
