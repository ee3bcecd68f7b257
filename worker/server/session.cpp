#include "worker/server/session.hpp"

#include <utility>

namespace penstock::worker {
namespace {

constexpr std::size_t blob_chunk_bytes = 512 << 10;  // half the frame limit

template <class... Handlers>
struct Overload : Handlers... {
  using Handlers::operator()...;
};
template <class... Handlers>
Overload(Handlers...) -> Overload<Handlers...>;

}  // namespace

Session::Session(std::uint64_t id, async::Stream stream, SessionHost& host, log::Logger logger)
    : id_(id), connection_(std::move(stream)), host_(host), logger_(std::move(logger)) {}

boost::asio::awaitable<void> Session::run(Duration hello_deadline, Duration idle_deadline) {
  logger_.info("router connected", {{"router", connection_.peer_address()}});
  Error why = make_error(ErrorCode::unavailable, "closed");
  for (bool open = true; open;) {
    auto frame = co_await connection_.read(welcomed_ ? idle_deadline : hello_deadline);
    if (!frame) {
      why = frame.error();
      break;
    }
    auto message = protocol::decode_router_message(frame->type, frame->body);
    auto handled = message ? handle(std::move(*message)) : Result<void>(message.error());
    if (!handled) {
      why = handled.error();
      send(protocol::ProtocolError{why});
      (void)co_await connection_.flush(hello_deadline);
      open = false;
    }
  }
  connection_.close();
  const std::size_t aborted = requests_.size();
  abort_all();
  logger_.info("router disconnected",
               {{"router", connection_.peer_address()}, {"reason", why.message}, {"aborted", aborted}});
}

Result<void> Session::handle(const protocol::Hello& hello) {
  if (welcomed_) return make_error(ErrorCode::invalid_argument, "HELLO came twice");
  if (hello.version != protocol::protocol_version) {
    return make_error(ErrorCode::unsupported, "this worker speaks protocol version " +
                                                  std::to_string(protocol::protocol_version) + ", the router version " +
                                                  std::to_string(hello.version));
  }
  const auto& identity = host_.identity();
  if (!hello.model.empty() && hello.model != identity.welcome.card.name) {
    return make_error(ErrorCode::not_found,
                      "this worker serves model " + identity.welcome.card.name + ", not " + hello.model);
  }
  protocol::Welcome welcome = identity.welcome;
  welcome.hash_probe = identity.hash_probe(hello.hash_probe_tokens);
  welcomed_ = true;
  send(welcome);
  return {};
}

Result<void> Session::handle(protocol::RouterMessage message) {
  if (!welcomed_ && !std::holds_alternative<protocol::Hello>(message)) {
    return make_error(ErrorCode::invalid_argument, "the first message must be HELLO");
  }
  return std::visit(Overload{
                        [&](protocol::Hello& hello) { return handle(hello); },
                        [&](protocol::Generate& generate) -> Result<void> {
                          accept(std::move(generate), Part::whole);
                          return {};
                        },
                        [&](protocol::Prefill& prefill) -> Result<void> {
                          accept(std::move(prefill), Part::prefill);
                          return {};
                        },
                        [&](protocol::Expect& expect) -> Result<void> {
                          accept(std::move(expect), Part::whole);
                          return {};
                        },
                        [&](protocol::Abort& abort) -> Result<void> {
                          // Only this session's requests: no router can end another's.
                          if (!requests_.contains(abort.request)) return {};
                          if (!abort.choice) forget(abort.request);
                          host_.post(std::move(abort));
                          return {};
                        },
                        [&](protocol::Reoffer& reoffer) -> Result<void> {
                          if (requests_.contains(reoffer.request)) {
                            host_.post(std::move(reoffer));
                          } else {
                            send(protocol::RequestError{reoffer.request,
                                                        reoffer.route.attempt,
                                                        {ErrorCode::not_found, "this worker no longer holds the KV"},
                                                        {}});
                          }
                          return {};
                        },
                        [&](protocol::Release& release) -> Result<void> {
                          host_.post(std::move(release));
                          return {};
                        },
                        [&](protocol::SnapshotRequest&) -> Result<void> {
                          host_.post(SnapshotWanted{id_});
                          return {};
                        },
                        [&](protocol::GetBlob& blob) -> Result<void> {
                          if (!host_.identity().blobs.contains(blob.digest)) {
                            return make_error(ErrorCode::not_found, "this worker has no blob of that digest");
                          }
                          send_blob(blob.digest);
                          return {};
                        },
                        [&](protocol::Drain&) -> Result<void> {
                          host_.request_drain();
                          return {};
                        },
                        [&](protocol::Ping& ping) -> Result<void> {
                          send(protocol::Pong{ping.nonce});
                          return {};
                        },
                    },
                    message);
}

template <class Message>
void Session::accept(Message message, Part part) {
  ++requests_seen_;
  const RequestId request = message.spec.request;
  const std::uint32_t attempt = message.spec.attempt;
  const auto choices = static_cast<std::uint32_t>(message.spec.choices.size());
  auto refuse = [&](ErrorCode code, std::string why, Duration retry_after) {
    send(protocol::RequestError{request, attempt, {code, std::move(why)}, retry_after});
  };
  if (host_.is_draining()) return refuse(ErrorCode::unavailable, "this worker is draining", {});
  if (!requests_.contains(request) && !host_.claim(request, id_)) {
    return refuse(ErrorCode::invalid_argument, "another router uses this request id", {});
  }
  requests_[request] = {choices, part};
  if (!host_.post(std::move(message))) {
    forget(request);
    refuse(ErrorCode::resource_exhausted, "the worker's inbox is full", std::chrono::seconds(1));
  }
}

void Session::forget(RequestId request) {
  if (requests_.erase(request) > 0) host_.forget(request);
}

void Session::send(const protocol::WorkerMessage& message) {
  const auto encoded = protocol::encode(message);
  switch (connection_.send(encoded.type, encoded.body)) {
    case async::SendResult::queued:
    case async::SendResult::closed:
      return;
    case async::SendResult::full:
      logger_.warn("router does not read, closing", {{"router", connection_.peer_address()}});
      connection_.close();
      return;
    case async::SendResult::too_large:
      logger_.error("message over the frame limit, closing",
                    {{"router", connection_.peer_address()}, {"type", encoded.type}, {"bytes", encoded.body.size()}});
      connection_.close();
      return;
  }
}

void Session::send_blob(const std::string& digest) {
  const std::string& bytes = host_.identity().blobs.at(digest);
  std::size_t offset = 0;
  do {
    std::string chunk = bytes.substr(offset, blob_chunk_bytes);
    const std::size_t count = chunk.size();
    send(protocol::Blob{digest, offset, bytes.size(), std::move(chunk)});
    offset += count;
  } while (offset < bytes.size());
}

void Session::send_load(protocol::Load load) {
  load.requests_seen = requests_seen_;
  send(load);
}

void Session::send_step(protocol::Step step) {
  for (const auto& choice : step.choices) {
    if (!choice.finish) continue;
    auto found = requests_.find(choice.request);
    if (found == requests_.end() || found->second.part == Part::prefill) continue;
    if (found->second.choices_unfinished <= 1) {
      forget(choice.request);
    } else {
      --found->second.choices_unfinished;
    }
  }
  send(std::move(step));
}

void Session::send_status(protocol::TransferStatus status) {
  auto found = requests_.find(status.request);
  if (found != requests_.end() && found->second.part == Part::prefill) forget(status.request);
  send(std::move(status));
}

void Session::send_error(protocol::RequestError error) {
  forget(error.request);
  send(std::move(error));
}

void Session::abort_all() {
  for (const auto& [request, choices] : requests_) {
    host_.post(protocol::Abort{request, std::nullopt, 0, "the router's connection ended"});
    host_.forget(request);
  }
  requests_.clear();
}

}  // namespace penstock::worker
