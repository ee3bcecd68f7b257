// Routers' connections to a simulated worker; as worker/server/session.cpp.
#include "common/text/block_hash.hpp"
#include "tests/sim/overload.hpp"
#include "tests/sim/worker.hpp"

namespace penstock::sim {

using namespace std::chrono_literals;

void SimWorker::accept(const WirePtr& wire) {
  const std::uint64_t id = next_session_++;
  sessions_[id].wire = wire;
  wire->worker = &process_;
  wire->to_worker = [this, id](protocol::RouterMessage message) { on_message(id, std::move(message)); };
  wire->worker_closed = [this, id] { close_session(id); };
}

protocol::Welcome SimWorker::welcome() const {
  protocol::Welcome welcome;
  welcome.instance = instance_;
  welcome.epoch = epoch_;
  welcome.role = shape_.role;
  welcome.card.name = "fake";
  welcome.card.revision = "1";
  welcome.card.context_tokens = plan_.context_tokens;
  welcome.card.vocabulary_size = plan_.model.limits.vocabulary_size;
  welcome.block_tokens = plan_.block_tokens;
  welcome.hash_scheme = text::BlockHasher(text::local_block_hash_key(), {}, plan_.block_tokens).scheme_name();
  welcome.kv_dtype = "bf16";
  welcome.kv_blocks = shape_.blocks;
  welcome.sequences_max = shape_.sequences_max;
  welcome.kv_layout_fingerprint = "fake";
  welcome.kv_address = kv_address_of(slot_);
  return welcome;
}

void SimWorker::on_message(std::uint64_t id, protocol::RouterMessage message) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return;
  Session& session = found->second;
  std::visit(Overload{
                 [&](protocol::Hello& hello) {
                   protocol::Welcome answer = welcome();
                   answer.hash_probe = hasher_.hash_blocks(hasher_.root("", ""), hello.hash_probe_tokens);
                   send(session, std::move(answer));
                   session.is_welcomed = true;
                 },
                 [&](protocol::Generate& generate) { take(session, std::move(generate)); },
                 [&](protocol::Prefill& prefill) { take(session, std::move(prefill)); },
                 [&](protocol::Expect& expect) { take(session, std::move(expect)); },
                 [&](protocol::Reoffer& reoffer) {
                   if (session.requests.contains(reoffer.request)) return post(std::move(reoffer));
                   const Error error{ErrorCode::not_found, "this worker no longer holds the KV"};
                   send(session, protocol::RequestError{reoffer.request, reoffer.route.attempt, error, {}});
                 },
                 [&](protocol::Release& release) {
                   if (session.requests.contains(release.request)) post(std::move(release));
                 },
                 [&](protocol::Abort& abort) {
                   if (session.requests.contains(abort.request)) post(std::move(abort));
                 },
                 [&](protocol::SnapshotRequest&) { post(worker::SnapshotWanted{id}); },
                 [&](protocol::GetBlob&) {},
                 [&](protocol::Drain&) { drain(); },
                 [&](protocol::Ping& ping) { send(session, protocol::Pong{ping.nonce}); },
             },
             message);
}

template <class Message>
void SimWorker::take(Session& session, Message message) {
  ++session.requests_seen;
  const RequestId request = message.spec.request;
  const std::uint32_t attempt = message.spec.attempt;
  std::uint64_t id = 0;
  for (const auto& [key, one] : sessions_) {
    if (&one == &session) id = key;
  }
  const auto owner = owners_.find(request);
  if (owner != owners_.end() && owner->second != id) {
    const Error error{ErrorCode::invalid_argument, "another router uses this request id"};
    send(session, protocol::RequestError{request, attempt, error, {}});
    return;
  }
  owners_[request] = id;
  session.requests[request] = {attempt, events_.now(), std::is_same_v<Message, protocol::Prefill>};
  seen_[message.spec.cache_salt].insert(request.low - 1);
  post(std::move(message));
}

void SimWorker::end_request(RequestId request, std::uint32_t attempt) {
  const auto owner = owners_.find(request);
  if (owner == owners_.end()) return;
  auto& requests = sessions_.at(owner->second).requests;
  const auto found = requests.find(request);
  if (found == requests.end() || found->second.attempt != attempt) return;
  requests.erase(found);
  owners_.erase(owner);
}

void SimWorker::close_session(std::uint64_t id) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return;
  Session session = std::move(found->second);
  sessions_.erase(found);
  session.wire->to_worker = nullptr;
  session.wire->worker_closed = nullptr;
  session.wire->worker = nullptr;
  for (const auto& [request, taken] : session.requests) {
    if (plan_.bug != Bug::session_leak) post(protocol::Abort{request, std::nullopt, 0, "the router has gone"});
    owners_.erase(request);
  }
}

void SimWorker::broadcast(const protocol::WorkerMessage& message) {
  for (auto& [id, session] : sessions_) {
    if (session.is_welcomed) send(session, message);
  }
}

void SimWorker::send(const Session& session, protocol::WorkerMessage message) {
  const WirePtr& wire = session.wire;
  const bool is_full = wire->queued >= plan_.wire_messages_max;
  if (wire->queued > plan_.wire_messages_max) violation("more messages wait for a router than allowed");
  if (!is_full || plan_.bug == Bug::slow_reader_kept) return send_to_router(events_, wire, std::move(message));
  if (std::exchange(wire->is_closing, true)) return;
  // The router does not read: as worker/server/session.cpp, the connection ends. Not here: sessions are being walked.
  process_.after(Duration(0), [this, wire] {
    drop_worker_end(events_, wire);
    for (const auto& [id, one] : sessions_) {
      if (one.wire == wire) return close_session(id);
    }
  });
}

void SimWorker::send_load() {
  protocol::Load load = scheduler_.load();
  load.tokens_per_second_prefill = 10'000;
  load.step_seconds_decode = 0.002f;
  for (auto& [id, session] : sessions_) {
    if (!session.is_welcomed) continue;
    load.requests_seen = session.requests_seen;
    send(session, load);
  }
  process_.after(100ms, [this] { send_load(); });
}

void SimWorker::drain() {
  scheduler_.drain();
  driver_.machine().drain();
  touched();
  broadcast(protocol::Goodbye{"drained"});
}

bool SimWorker::works_for_nobody() const {
  const protocol::Load load = scheduler_.load();
  return owners_.empty() && load.running + load.waiting > 0;
}

std::vector<SimWorker::Held> SimWorker::held() const {
  std::vector<Held> all;
  for (const auto& [id, session] : sessions_) {
    for (const auto& [request, taken] : session.requests) {
      all.push_back({request, taken.since, taken.is_send, session.wire->is_cut});
    }
  }
  return all;
}

}  // namespace penstock::sim
