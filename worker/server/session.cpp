#include "worker/server/session.hpp"

#include <utility>

namespace penstock::worker {
namespace {

constexpr std::size_t blob_chunk_bytes = 512 << 10;  // half the frame limit

static_assert(async::FrameLimits{}.message_bytes_max == protocol::message_bytes_max);

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
    auto handled = message ? dispatch(std::move(*message)) : Result<void>(message.error());
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

Result<void> Session::handle(protocol::Hello& hello) {
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

Result<void> Session::dispatch(protocol::RouterMessage message) {
  if (!welcomed_ && !std::holds_alternative<protocol::Hello>(message)) {
    return make_error(ErrorCode::invalid_argument, "the first message must be HELLO");
  }
  return std::visit([this](auto& one) { return handle(one); }, message);
}

Result<void> Session::handle(protocol::Abort& abort) {
  // Only this session's requests: no router can end another's.
  if (requests_.contains(abort.request)) host_.post(std::move(abort));
  return {};
}

Result<void> Session::handle(protocol::Reoffer& reoffer) {
  const RequestId request = reoffer.request;
  const std::uint32_t attempt = reoffer.route.attempt;
  if (!requests_.contains(request)) {
    send_error({request, attempt, {ErrorCode::not_found, "this worker no longer holds the KV"}, {}}, {});
  } else {
    host_.post(std::move(reoffer));
  }
  return {};
}

Result<void> Session::handle(protocol::Release& release) {
  if (requests_.contains(release.request)) host_.post(std::move(release));
  return {};
}

Result<void> Session::handle(protocol::SnapshotRequest&) {
  host_.post(SnapshotWanted{id_});
  return {};
}

Result<void> Session::handle(protocol::GetBlob& blob) {
  if (!host_.identity().blobs.contains(blob.digest)) {
    return make_error(ErrorCode::not_found, "this worker has no blob of that digest");
  }
  send_blob(blob.digest);
  return {};
}

Result<void> Session::handle(protocol::Drain&) {
  host_.request_drain();
  return {};
}

Result<void> Session::handle(protocol::Ping& ping) {
  send(protocol::Pong{ping.nonce});
  return {};
}

template <class Message>
Result<void> Session::accept(Message message) {
  ++requests_seen_;
  const RequestId request = message.spec.request;
  const std::uint32_t attempt = message.spec.attempt;
  const std::string trace = message.spec.trace;
  auto refuse = [&](ErrorCode code, std::string why, Duration retry_after) {
    send_error({request, attempt, {code, std::move(why)}, retry_after}, trace);
    return Result<void>();
  };
  if (host_.is_draining()) return refuse(ErrorCode::unavailable, "this worker is draining", {});
  if (!requests_.contains(request) && !host_.claim(request, id_)) {
    return refuse(ErrorCode::invalid_argument, "another router uses this request id", {});
  }
  requests_[request] = {attempt, trace};
  if (!host_.post(std::move(message))) {
    forget(request);
    return refuse(ErrorCode::resource_exhausted, "the worker's inbox is full", std::chrono::seconds(1));
  }
  return {};
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

void Session::send_error(const protocol::RequestError& error) {
  const auto living = requests_.find(error.request);
  send_error(error, living == requests_.end() ? std::string() : living->second.trace);
}

void Session::send_error(const protocol::RequestError& error, const std::string& trace) {
  logger_.warn("request failed", {{"request", to_string(error.request)},
                                  {"attempt", error.attempt},
                                  {"router", connection_.peer_address()},
                                  {"code", to_string(error.error.code)},
                                  {"reason", error.error.message},
                                  {"traceparent", trace}});
  send(error);
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

void Session::end_request(RequestId request, std::uint32_t attempt) {
  auto found = requests_.find(request);
  if (found != requests_.end() && found->second.attempt == attempt) forget(request);
}

void Session::abort_all() {
  for (const auto& [request, living] : requests_) {
    host_.post(protocol::Abort{request, std::nullopt, 0, "the router's connection ended"});
    host_.forget(request);
  }
  requests_.clear();
}

}  // namespace penstock::worker
