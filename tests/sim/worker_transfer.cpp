// The transfer thread of a simulated worker: the production driver on the simulated fabric, with a hop to and from the
// engine thread.
#include "common/base/check.hpp"
#include "tests/sim/overload.hpp"
#include "tests/sim/worker.hpp"

namespace penstock::sim {

using namespace std::chrono_literals;
using worker::transfer::LinkId;

worker::transfer::LocalNode SimWorker::local_node() {
  const worker::KvPoolView pool = executor_.kv_pool();
  const std::uint64_t block_bytes = pool.geometry.block_bytes();
  PENSTOCK_CHECK(transport_.register_pool({pool.base, pool.blocks * block_bytes}).has_value());
  auto address = transport_.local_address();
  PENSTOCK_CHECK(address.has_value());
  return {instance_, "fake", "sim", "the key of the simulation", pool.blocks, block_bytes, *address};
}

void SimWorker::to_driver(worker::TransferAction action) {
  const Duration hop = to_driver_lane_.delay(events_.now(), events_.between(1us, 100us));
  if (plan_.bug == Bug::freed_while_reading) {
    if (const auto* cancel = std::get_if<worker::CancelTransfer>(&action)) {
      const Error error{ErrorCode::aborted, cancel->reason};
      post(worker::TransferEvent{worker::ReceiveFailed{cancel->key, worker::TransferEnd::aborted, error}});
    }
  }
  process_.after(hop, [this, action = std::move(action)]() mutable { perform(action); });
}

void SimWorker::perform(worker::TransferAction& action) {
  const TimePoint now = clock_.now();
  auto& machine = driver_.machine();
  std::visit(
      Overload{
          [&](worker::BeginSend& one) { machine.sender().begin_send(one.route, now); },
          [&](worker::OfferChunk& one) { machine.sender().offer(std::move(one), now); },
          [&](worker::BeginReceive& one) { machine.receiver().begin_receive(one.route, one.deadline, now); },
          [&](worker::Reservation& one) { machine.receiver().reserve(std::move(one), now); },
          [&](worker::RefuseReservation& one) { machine.receiver().refuse_reservation(one.key, one.chunk, now); },
          [&](worker::ReofferSend& one) { machine.sender().reoffer(one.route, now); },
          [&](worker::CancelTransfer& one) { machine.cancel(one.key, one.reason, now); },
      },
      action);
  touched();
}

void SimWorker::to_engine(worker::TransferEvent event) {
  const bool is_send_end =
      std::holds_alternative<worker::SendEnded>(event) || std::holds_alternative<worker::ChunkReleased>(event);
  if (plan_.bug == Bug::pin_leaked && is_send_end && events_.chance(0.2)) return;
  const Duration hop = to_engine_lane_.delay(events_.now(), events_.between(1us, 100us));
  process_.after(hop, [this, event = std::move(event)]() mutable { post(std::move(event)); });
}

void SimWorker::touched() {
  driver_.carry_out(clock_.now());
  poll_soon();
}

void SimWorker::poll_soon() {
  if (poll_pending_) return;
  poll_pending_ = true;
  process_.after(events_.between(1us, 50us), [this] {
    poll_pending_ = false;
    poll();
  });
}

void SimWorker::poll() {
  if (driver_.poll(clock_.now()) > 0) poll_soon();
  const TimePoint next = std::max(driver_.machine().next_deadline(), clock_.now() + 10us);
  if (next >= TimePoint::max() || (poll_at_ <= next && poll_at_ > clock_.now())) return;
  poll_at_ = next;
  process_.after(clock_.until(next), [this, next] {
    if (poll_at_ == next) poll();
  });
}

// ---- Control channels ----

void SimWorker::dial(LinkId link, const std::string& address, base::Bytes hello) {
  auto channel = std::make_shared<Channel>();
  channel->dialler = instance_;
  channel->dialler_link = link;
  channels_[link] = channel;
  events_.after(events_.between(50us, 1ms), [&neighbours = context_.neighbours, &fabric = context_.fabric, channel,
                                             address, hello = std::move(hello)] {
    SimWorker* self = neighbours.find_worker(channel->dialler);
    if (self == nullptr) return;
    SimWorker* peer = neighbours.find_worker(address);
    const bool is_cut = peer != nullptr && fabric.is_cut(self->slot_, peer->slot_);
    if (peer == nullptr || is_cut) {
      return self->process_.after(is_cut ? 500ms : 1ms, [self, channel] {
        self->on_channel_closed(channel->dialler_link, "the connection was refused");
      });
    }
    channel->acceptor = peer->instance_;
    peer->process_.after(1us, [peer, channel, hello] { peer->on_dialled(channel, hello); });
  });
}

void SimWorker::on_dialled(std::shared_ptr<Channel> channel, const base::Bytes& hello) {
  const auto result = driver_.on_hello(hello, clock_.now());
  poll_soon();
  channel->acceptor_link = result.link;
  if (result.link != 0) channels_[result.link] = channel;
  events_.after(events_.between(50us, 1ms),
                [&neighbours = context_.neighbours, channel, reply = result.reply, is_kept = result.link != 0] {
                  SimWorker* dialler = neighbours.find_worker(channel->dialler);
                  if (dialler == nullptr) return;
                  dialler->process_.after(1us, [dialler, channel, reply, is_kept] {
                    if (!reply.empty()) dialler->on_dial_reply(*channel, reply);
                    if (!is_kept) dialler->on_channel_closed(channel->dialler_link, "closed by the peer");
                  });
                });
}

void SimWorker::on_dial_reply(const Channel& channel, const base::Bytes& reply) {
  if (!channels_.contains(channel.dialler_link)) return;
  driver_.on_dial_reply(channel.dialler_link, reply, clock_.now());
  poll_soon();
}

void SimWorker::on_channel_closed(LinkId link, const std::string& why) {
  if (channels_.erase(link) == 0) return;
  driver_.on_channel_closed(link, why, clock_.now());
  poll_soon();
}

void SimWorker::close(LinkId link) {
  drop_channel(link, events_.between(50us, 2ms));
}

void SimWorker::drop_channel(LinkId link, Duration lag) {
  const auto found = channels_.find(link);
  if (found == channels_.end()) return;
  const auto channel = found->second;
  channels_.erase(found);
  const bool is_dialler = channel->dialler == instance_ && channel->dialler_link == link;
  events_.after(lag, [&neighbours = context_.neighbours, &fabric = context_.fabric, channel, is_dialler, from = slot_] {
    SimWorker* peer = neighbours.find_worker(is_dialler ? channel->acceptor : channel->dialler);
    if (peer == nullptr || fabric.is_cut(from, peer->slot_)) return;
    const LinkId theirs = is_dialler ? channel->acceptor_link : channel->dialler_link;
    peer->process_.after(1us, [peer, theirs] { peer->on_channel_closed(theirs, "closed by the peer"); });
  });
}

// ---- What is looked at ----

void SimWorker::on_transfer_ended(const worker::transfer::TransferRecord& record) {
  const bool is_send = record.side == worker::transfer::Side::send;
  switch (record.end) {
    case worker::TransferEnd::committed:
      if (is_send) ++context_.tally.sends_committed;
      return;
    case worker::TransferEnd::expired:
      if (is_send) ++context_.tally.sends_expired;
      return;
    case worker::TransferEnd::invalid:
      ++context_.tally.chunks_invalid;
      return;
    case worker::TransferEnd::failed:
      ++context_.tally.reads_failed;
      return;
    case worker::TransferEnd::aborted:
    case worker::TransferEnd::released:
      return;
  }
}

void SimWorker::on_arrival(base::Bytes& message) {
  if (plan_.bug != Bug::done_ack_believed) return;
  auto envelope = worker::transfer::decode(message);
  if (!envelope) return;
  auto* answer = std::get_if<worker::transfer::DoneAckMessage>(&envelope->message);
  if (answer == nullptr) return;
  answer->valid = true;
  message = worker::transfer::encode(*envelope);
}

std::uint64_t SimWorker::generation_at(std::uint64_t offset) const {
  return scheduler_.cache().generation(static_cast<BlockIndex>(offset / plan_.model.geometry.block_bytes()));
}

void SimWorker::check_write(std::uint64_t offset, std::uint64_t bytes, std::uint64_t generation) {
  const std::uint64_t block_bytes = plan_.model.geometry.block_bytes();
  const worker::KvCache& cache = scheduler_.cache();
  for (std::uint64_t at = offset / block_bytes; at <= (offset + bytes - 1) / block_bytes; ++at) {
    const auto block = static_cast<BlockIndex>(at);
    if (cache.references(block) == 0) {
      violation("a read writes into block " + std::to_string(block) + ", which was freed");
    } else if (at == offset / block_bytes && cache.generation(block) != generation) {
      violation("a read writes into block " + std::to_string(block) + ", which belongs to another by now");
    }
  }
}

}  // namespace penstock::sim
