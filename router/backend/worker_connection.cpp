#include "router/backend/worker_connection.hpp"

#include <algorithm>
#include <charconv>
#include <utility>

#include "common/async/deadline.hpp"
#include "common/protocol/codec.hpp"
#include "common/time/wall_clock.hpp"
#include "router/backend/workshop.hpp"

namespace penstock::router {
namespace {

namespace asio = boost::asio;

constexpr std::size_t blob_bytes_max = 64 << 20;

// Any ids do, as long as they fill some blocks and use ids of both sizes that the hash treats differently.
std::vector<TokenId> probe_tokens() {
  std::vector<TokenId> tokens;
  for (TokenId i = 0; i < 64; ++i) tokens.push_back(i * 7919 % 50'000);
  for (TokenId i = 0; i < 32; ++i) tokens.push_back((1u << 24) + i);
  return tokens;
}

struct HostPort {
  std::string host;
  std::uint16_t port = 0;
};

Result<HostPort> split_address(std::string_view address) {
  const std::size_t colon = address.rfind(':');
  if (colon == std::string_view::npos) return make_error(ErrorCode::invalid_argument, "must be host:port");
  std::string_view host = address.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  const std::string_view digits = address.substr(colon + 1);
  std::uint16_t port = 0;
  auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (host.empty() || port == 0 || error != std::errc() || end != digits.data() + digits.size()) {
    return make_error(ErrorCode::invalid_argument, "must be host:port");
  }
  return HostPort{std::string(host), port};
}

template <class... Handlers>
struct Overload : Handlers... {
  using Handlers::operator()...;
};
template <class... Handlers>
Overload(Handlers...) -> Overload<Handlers...>;

}  // namespace

BackendProbe make_backend_probe(metrics::Registry& registry) {
  BackendProbe probe;
  probe.workers_connected = registry.gauge("penstock_router_workers_connected", "Workers with a live connection.");
  probe.connects_total = registry.counter("penstock_router_worker_connects_total", "Connections that were welcomed.");
  probe.connect_failures_total =
      registry.counter("penstock_router_worker_connect_failures_total", "Connections that failed before a WELCOME.");
  probe.workers_lost_total = registry.counter("penstock_router_workers_lost_total", "Welcomed connections that ended.");
  probe.workers_refused_total =
      registry.counter("penstock_router_workers_refused_total", "Workers that must not be used; see /readyz.");
  probe.frames_received_total = registry.counter("penstock_router_worker_frames_total", "Frames from workers.");
  probe.protocol_errors_total =
      registry.counter("penstock_router_worker_protocol_errors_total", "Frames that could not be understood.");
  return probe;
}

WorkerConnection::WorkerConnection(BackendContext& context, WorkerTarget target)
    : context_(context), target_(std::move(target)) {}

asio::awaitable<void> WorkerConnection::run() {
  auto target = split_address(target_.address);
  if (!target) {
    problem_ = target.error().message;
    context_.logger.error("worker address is wrong", {{"worker", target_.address}, {"reason", problem_}});
    co_return;
  }
  for (Duration backoff = context_.settings.backoff_min;;) {
    auto stream =
        co_await async::connect(target->host, target->port, context_.settings.connect_timeout, context_.settings.tls);
    Result<void> ended = stream ? Result<void>() : Result<void>(stream.error());
    was_welcomed_ = false;
    if (stream) ended = co_await session(std::move(*stream));
    if (!was_welcomed_) context_.probe.connect_failures_total.increment();
    const std::string reason = ended ? "closed" : ended.error().message;
    if (reason != problem_) {
      context_.logger.warn("worker not connected", {{"worker", target_.address}, {"reason", reason}});
    }
    problem_ = reason;
    backoff = was_welcomed_ ? context_.settings.backoff_min : std::min(backoff * 2, context_.settings.backoff_max);
    co_await async::pause(backoff + backoff * static_cast<Duration::rep>(context_.random.below(256)) / 1024);
  }
}

asio::awaitable<Result<void>> WorkerConnection::session(async::Stream stream) {
  connection_ = std::make_unique<async::FrameConnection>(std::move(stream));
  // Also when this is cancelled: the fleet and the proxy must learn that the worker is gone.
  struct Leaver {
    WorkerConnection& me;
    ~Leaver() { me.leave(); }
  };
  const Leaver leaver{*this};
  auto welcome = co_await greet();
  if (!welcome) co_return welcome.error();
  auto entered = enter(*welcome);
  if (!entered) co_return entered.error();
  co_return co_await serve();
}

asio::awaitable<Result<protocol::Welcome>> WorkerConnection::greet() {
  protocol::Hello hello;
  hello.router_id = context_.settings.router_id;
  hello.hash_probe_tokens = probe_tokens();
  send(hello);
  auto frame = co_await connection_->read(context_.settings.welcome_timeout);
  if (!frame) co_return frame.error();
  auto message = protocol::decode_worker_message(frame->type, frame->body);
  if (!message) co_return message.error();
  if (const auto* error = std::get_if<protocol::ProtocolError>(&*message)) co_return error->error;
  auto* welcome = std::get_if<protocol::Welcome>(&*message);
  if (welcome == nullptr) co_return make_error(ErrorCode::data_loss, "the first message is no WELCOME");
  if (welcome->instance.is_zero() || welcome->card.name.empty() || welcome->block_tokens == 0) {
    co_return make_error(ErrorCode::data_loss, "the WELCOME lacks an instance, a model name or a block size");
  }
  co_return std::move(*welcome);
}

Result<void> WorkerConnection::enter(const protocol::Welcome& welcome) {
  ServedModel* model = context_.registry.admit(welcome, wall_now().unix_s);
  if (model == nullptr) return make_error(ErrorCode::resource_exhausted, "too many models");
  const auto expected = model->hasher->hash_blocks(probe_tokens());
  const auto verdict = model->fleet.on_welcome(welcome, target_.address, expected, context_.clock.now());
  model_ = model;
  ++model_->connections;
  ref_ = verdict.worker;
  instance_ = welcome.instance;
  was_welcomed_ = true;
  card_ = welcome.card;
  is_suspect_ = false;
  is_refused_ = verdict.refusal != Refusal::none;
  last_frame_ = last_ping_ = context_.clock.now();
  context_.probe.connects_total.increment();
  context_.probe.workers_connected.add(1);
  if (is_refused_) {
    problem_ = verdict.detail;
    context_.probe.workers_refused_total.increment();
    context_.logger.error("worker refused", {{"worker", target_.address},
                                             {"instance", to_string(welcome.instance)},
                                             {"refusal", to_string(verdict.refusal)},
                                             {"reason", verdict.detail}});
    return {};
  }
  problem_.clear();
  context_.logger.info("worker connected", {{"worker", target_.address},
                                            {"instance", to_string(welcome.instance)},
                                            {"model", welcome.card.name},
                                            {"kv_blocks", welcome.kv_blocks}});
  apply_target();
  ask_snapshot(verdict.snapshot);
  return {};
}

void WorkerConnection::set_target(const WorkerTarget& target) {
  if (target == target_) return;
  target_ = target;
  if (instance_ && !is_refused_) apply_target();
}

void WorkerConnection::apply_target() {
  if (!target_.labels.empty()) model_->fleet.on_labels(ref_, target_.labels);
  if (target_.is_draining) model_->fleet.on_draining(ref_);
}

void WorkerConnection::leave() {
  connection_.reset();
  if (!instance_) return;
  const InstanceId lost = *instance_;
  ServedModel& model = *model_;
  instance_.reset();
  model.fleet.on_disconnect(ref_);
  --model.connections;
  ref_ = {};
  if (std::exchange(is_fetching_, false)) model.text_due = {};  // another connection takes over
  tokenizer_.reset();
  chat_template_.reset();
  context_.probe.workers_connected.add(-1);
  context_.probe.workers_lost_total.increment();
  context_.logger.warn("worker lost", {{"worker", target_.address}, {"instance", to_string(lost)}});
  if (!is_refused_) context_.events.on_worker_lost(lost);
}

asio::awaitable<Result<void>> WorkerConnection::serve() {
  for (;;) {
    if (is_text_wanted()) begin_fetch();
    auto frame = co_await connection_->read(context_.settings.ping_interval);
    const TimePoint now = context_.clock.now();
    if (frame) {
      context_.probe.frames_received_total.increment();
      last_frame_ = now;
      if (is_suspect_) {
        is_suspect_ = false;
        model_->fleet.on_alive(ref_);
      }
      auto message = protocol::decode_worker_message(frame->type, frame->body);
      auto handled = message ? handle(std::move(*message)) : Result<void>(message.error());
      if (!handled) {
        context_.probe.protocol_errors_total.increment();
        co_return handled.error();
      }
      if (has_blobs()) {
        co_await build_text();
        last_frame_ = context_.clock.now();
      }
    } else if (frame.error().code != ErrorCode::deadline_exceeded) {
      co_return frame.error();
    }
    if (now - last_ping_ >= context_.settings.ping_interval) {
      last_ping_ = now;
      send(protocol::Ping{context_.random.next()});
    }
    const Duration silence = now - last_frame_;
    if (silence >= context_.settings.silence_max) co_return make_error(ErrorCode::unavailable, "the worker is silent");
    if (silence >= context_.settings.suspect_after && !is_suspect_ && !is_refused_) {
      is_suspect_ = true;
      model_->fleet.on_suspect(ref_);
    }
  }
}

Result<void> WorkerConnection::handle(protocol::WorkerMessage&& message) {
  const TimePoint now = context_.clock.now();
  const InstanceId me = *instance_;
  return std::visit(
      Overload{
          [&](protocol::Welcome&) -> Result<void> { return make_error(ErrorCode::data_loss, "WELCOME came twice"); },
          [&](protocol::Blob& blob) { return take_blob(blob); },
          [&](protocol::Step& step) -> Result<void> {
            context_.events.on_step(me, std::move(step));
            return {};
          },
          [&](protocol::CacheEvents& events) -> Result<void> {
            if (!is_refused_) ask_snapshot(model_->fleet.on_cache_events(ref_, events, now));
            return {};
          },
          [&](protocol::Snapshot& snapshot) -> Result<void> {
            if (!is_refused_) ask_snapshot(model_->fleet.on_snapshot(ref_, snapshot, now));
            return {};
          },
          [&](protocol::Load& load) -> Result<void> {
            if (is_refused_) return {};
            model_->fleet.on_load(ref_, load, now);
            context_.events.on_capacity(*model_);
            return {};
          },
          [&](protocol::RequestError& error) -> Result<void> {
            context_.events.on_request_error(me, error);
            return {};
          },
          [&](protocol::TransferStatus& status) -> Result<void> {
            context_.events.on_transfer_status(me, status);
            return {};
          },
          [&](protocol::Goodbye& goodbye) -> Result<void> {
            model_->fleet.on_draining(ref_);
            context_.logger.info("worker says goodbye", {{"worker", target_.address}, {"reason", goodbye.reason}});
            return {};
          },
          [&](protocol::Pong&) -> Result<void> { return {}; },
          [&](protocol::ProtocolError& error) -> Result<void> { return error.error; },
      },
      message);
}

bool WorkerConnection::send(const protocol::RouterMessage& message) {
  if (!connection_) return false;
  const auto encoded = protocol::encode(message);
  switch (connection_->send(encoded.type, encoded.body)) {
    case async::SendResult::queued:
      return true;
    case async::SendResult::full:
    case async::SendResult::closed:
      return false;
    case async::SendResult::too_large:
      context_.logger.error("message over the frame limit",
                            {{"worker", target_.address}, {"bytes", encoded.body.size()}});
      return false;
  }
  return false;
}

void WorkerConnection::ask_snapshot(SnapshotNeed need) {
  if (need == SnapshotNeed::request) send(protocol::SnapshotRequest{});
}

/// One connection fetches and builds, so that memory and time for it do not grow with the fleet.
bool WorkerConnection::is_text_wanted() const {
  return model_->text == nullptr && model_->problem.empty() && !is_refused_ && !is_fetching_ &&
         context_.clock.now() >= model_->text_due;
}

bool WorkerConnection::has_blobs() const {
  return tokenizer_ && tokenizer_->is_complete && chat_template_ && chat_template_->is_complete;
}

void WorkerConnection::begin_fetch() {
  is_fetching_ = true;
  model_->text_due = context_.clock.now() + context_.settings.text_timeout;
  tokenizer_ = BlobFetch{card_.tokenizer_digest, {}, 0, false};
  chat_template_ = BlobFetch{card_.chat_template_digest, {}, 0, card_.chat_template_digest.empty()};
  send(protocol::GetBlob{card_.tokenizer_digest});
  if (!card_.chat_template_digest.empty()) send(protocol::GetBlob{card_.chat_template_digest});
}

Result<void> WorkerConnection::take_blob(protocol::Blob& blob) {
  for (auto* fetch : {&tokenizer_, &chat_template_}) {
    if (!*fetch || (*fetch)->is_complete || (*fetch)->digest != blob.digest) continue;
    BlobFetch& part = **fetch;
    if (blob.offset != part.bytes.size() || blob.total_bytes > blob_bytes_max ||
        part.bytes.size() + blob.bytes.size() > blob.total_bytes) {
      return make_error(ErrorCode::data_loss, "a blob's pieces do not fit together");
    }
    part.bytes += blob.bytes;
    part.is_complete = part.bytes.size() == blob.total_bytes;
    return {};
  }
  return {};
}

asio::awaitable<void> WorkerConnection::build_text() {
  const BlobFetch tokenizer = std::move(*tokenizer_), chat_template = std::move(*chat_template_);
  tokenizer_.reset();
  chat_template_.reset();
  if (model_->text || !model_->problem.empty()) {
    is_fetching_ = false;
    co_return;
  }
  const protocol::ModelCard card = card_;
  const auto cache = context_.registry.settings().token_cache;
  const FormatChoice formats = context_.registry.settings().formats.of(card.name);
  auto built = co_await run_in(
      context_.workshop, [&] { return ModelText::build(card, tokenizer.bytes, chat_template.bytes, cache, formats); });
  is_fetching_ = false;
  if (model_->text) co_return;
  if (!built) {
    model_->problem =
        "the tokenizer or chat template of model " + card.name + " cannot be used: " + built.error().message;
    context_.logger.error("model text is unusable", {{"model", card.name}, {"reason", built.error().message}});
    co_return;
  }
  model_->text = std::move(*built);
  context_.logger.info("model ready", {{"model", card.name},
                                       {"context_tokens", card.context_tokens},
                                       {"tool_format", to_string(model_->text->formats.tools)},
                                       {"reasoning_format", to_string(model_->text->formats.reasoning)}});
  context_.events.on_capacity(*model_);
}

}  // namespace penstock::router
