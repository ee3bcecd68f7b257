// Every front door of the router, in memory: any body at any path gets one whole answer or one proper stream, also when
// the client leaves in the middle. The first byte chooses the path, the second the behaviour of client and worker.
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/thread_pool.hpp>
#include <deque>
#include <memory>
#include <optional>

#include "common/base/check.hpp"
#include "common/http/sse.hpp"
#include "common/json/json.hpp"
#include "router/server/public_api.hpp"
#include "tests/fuzz/input.hpp"
#include "tests/support/byte_tokenizer.hpp"

namespace penstock::fuzz {
namespace {

namespace asio = boost::asio;
constexpr std::size_t rounds_max = 10'000;
constexpr std::uint32_t tokens_a_choice = 5;

class NullSink final : public log::Sink {
 public:
  void write(log::Level, std::string_view) override {}
};

/// Keeps what is sent to workers; the scripted engine answers it later, as a network would.
class Outbox final : public router::WorkerSender {
 public:
  bool send(InstanceId, const protocol::RouterMessage& message) override {
    messages.push_back(message);
    return true;
  }
  bool send(router::WorkerRef, const router::ServedModel&, const protocol::RouterMessage& message) override {
    messages.push_back(message);
    return true;
  }
  std::deque<protocol::RouterMessage> messages;
};

/// A client that checks what it is given, and may leave after some writes.
class Client final : public http::ResponseWriter {
 public:
  explicit Client(std::uint32_t writes_max) : writes_left_(writes_max) {}

  asio::awaitable<Result<void>> send(http::Response response) override {
    PENSTOCK_CHECK(!started_, "status", response.status);
    started_ = complete = true;
    PENSTOCK_CHECK(response.status >= 200 && response.status < 600, "status", response.status);
    PENSTOCK_CHECK(response.body.empty() || json::parse(response.body), response.body);
    PENSTOCK_CHECK(response.status == 200 || response.status == 204 || !response.body.empty());
    co_return take();
  }
  void begin_stream(int status, http::Headers) override {
    PENSTOCK_CHECK(!started_ && status == 200, "status", status);
    started_ = true;
  }
  asio::awaitable<Result<void>> write(std::string_view chunk) override {
    PENSTOCK_CHECK(started_ && !complete);
    read(chunk);
    co_return take();
  }
  asio::awaitable<Result<void>> end(std::string_view chunk) override {
    PENSTOCK_CHECK(started_ && !complete);
    read(chunk);
    PENSTOCK_CHECK(is_done_, "a stream ended well without [DONE] or message_stop");
    complete = true;
    co_return take();
  }
  void fail() override { complete = true; }
  bool started() const override { return started_; }
  bool is_client_connected() const override { return !left_; }
  void on_disconnect(std::function<void()> callback) override { on_disconnect_ = std::move(callback); }

  bool complete = false;

 private:
  Result<void> take() {
    if (writes_left_ > 0 && !left_) {
      --writes_left_;
      return {};
    }
    if (!std::exchange(left_, true) && on_disconnect_) on_disconnect_();
    return make_error(ErrorCode::unavailable, "the client has gone");
  }
  void read(std::string_view chunk) {
    std::vector<http::SseEvent> events;
    PENSTOCK_CHECK(decoder_.feed(chunk, events));
    for (const auto& event : events) {
      PENSTOCK_CHECK(!is_done_, event.data);
      if (event.data == "[DONE]") {
        is_done_ = true;
      } else {
        const auto data = json::parse(event.data);
        PENSTOCK_CHECK(data, event.data);
        const auto* type = data->is_object() ? data->get_object().if_contains("type") : nullptr;
        is_done_ = type != nullptr && type->is_string() && type->get_string() == "message_stop";
      }
    }
  }

  std::uint32_t writes_left_;
  bool started_ = false;
  bool left_ = false;
  bool is_done_ = false;
  http::SseDecoder decoder_{1 << 24};
  std::function<void()> on_disconnect_;
};

protocol::ModelCard model_card() {
  protocol::ModelCard card;
  card.name = "m";
  card.revision = "revision";
  card.context_tokens = 512;
  card.vocabulary_size = test::byte_vocabulary_size;
  card.eos_tokens = {test::im_end};
  card.eos_text = "<|im_end|>";
  return card;
}

/// The router without sockets. Lives as long as the process, so that what one request leaves behind meets the next.
class Doors {
 public:
  Doors() {
    dispatcher_.set_sender(outbox_);
    protocol::Welcome welcome;
    welcome.instance = InstanceId{1, 1};
    welcome.epoch = 1;
    welcome.card = model_card();
    welcome.kv_blocks = 10'000;
    welcome.sequences_max = 64;
    router::ServedModel* model = registry_.admit(welcome, 0);
    PENSTOCK_CHECK(model != nullptr);
    model->text = router::ModelText::build(welcome.card, test::byte_tokenizer_json(), test::chat_template_source(), {},
                                           {router::ToolFormat::hermes, router::ReasoningFormat::think})
                      .value();
    welcome.hash_scheme = model->hasher->scheme_name();
    const std::vector<TokenId> probe(32, 1);
    welcome.hash_probe = model->hasher->hash_blocks(probe);
    const auto verdict = model->fleet.on_welcome(welcome, "w:1", welcome.hash_probe, clock_.now());
    PENSTOCK_CHECK(verdict.refusal == router::Refusal::none, verdict.detail);
    model->fleet.on_snapshot(verdict.worker, protocol::Snapshot{1, 0, 0, true, {}}, clock_.now());
    worker_ = verdict.worker;
    model_ = model;
  }

  void serve(http::Request request, std::uint8_t behaviour) {
    protocol::Load load;
    load.kv_blocks_total = load.kv_blocks_free = 10'000;
    load.requests_seen = requests_seen_;
    model_->fleet.on_load(worker_, load, clock_.now());
    refuses_ = (behaviour & 0x40) != 0;
    Client client((behaviour & 0x80) != 0 ? behaviour & 7u : 1u << 30);
    bool is_over = false;
    asio::co_spawn(io_, handler_(std::move(request), client), [&](const std::exception_ptr& failure) {
      if (failure) std::rethrow_exception(failure);
      is_over = true;
    });
    std::size_t rounds = 0;
    while (!is_over) {
      PENSTOCK_CHECK(++rounds < rounds_max, "the answer never ends");
      io_.restart();
      // A long body is prepared in the workshop's thread; all else is done when poll() returns.
      if (io_.poll() == 0 && outbox_.messages.empty()) io_.run_one_for(std::chrono::milliseconds(1));
      clock_.advance(std::chrono::milliseconds(1));
      if (rounds % 64 == 0) dispatcher_.tick();
      answer();
    }
    answer();
    PENSTOCK_CHECK(client.complete || !client.is_client_connected(), "an answer without an end");
    PENSTOCK_CHECK(dispatcher_.living() == 0 && proxy_.active() == 0, "living", dispatcher_.living());
  }

 private:
  void answer() {
    while (!outbox_.messages.empty()) {
      const protocol::RouterMessage message = std::move(outbox_.messages.front());
      outbox_.messages.pop_front();
      if (const auto* generate = std::get_if<protocol::Generate>(&message)) run(generate->spec);
    }
  }

  void run(const protocol::GenerateSpec& spec) {
    ++requests_seen_;
    if (refuses_) {
      dispatcher_.on_request_error(InstanceId{1, 1},
                                   {spec.request, spec.attempt, make_error(ErrorCode::resource_exhausted, "full"), {}});
      return;
    }
    const std::uint32_t count = std::min(spec.sampling.tokens_max, tokens_a_choice);
    for (std::uint32_t position = 0; position < std::max(count, 1u); ++position) {
      protocol::Step step;
      for (const auto& choice : spec.choices) step.choices.push_back(next(spec, choice, position));
      dispatcher_.on_step(InstanceId{1, 1}, std::move(step));
    }
  }

  static protocol::ChoiceStep next(const protocol::GenerateSpec& spec, const protocol::Choice& choice,
                                   std::uint32_t position) {
    const auto& sampling = spec.sampling;
    protocol::ChoiceStep step;
    step.request = spec.request;
    step.attempt = spec.attempt;
    step.choice = choice.index;
    step.position = position;
    const TokenId token = position < spec.prompt.size() ? spec.prompt[position] : TokenId{'a'} + position;
    if (sampling.tokens_max > 0) step.tokens = {token};
    if (sampling.tokens_max > 0 && sampling.logprobs) step.logprobs = {{{token, -1.0f}, 1, {{token, -1.0f}}}};
    if (position + 1 >= sampling.tokens_max)
      step.finish = protocol::FinishReason::length;
    else if (position + 1 == tokens_a_choice)
      step.finish = protocol::FinishReason::stop;
    if (position == 0) {
      step.usage = protocol::Usage{static_cast<std::uint32_t>(spec.prompt.size()), 0, 0};
      if (sampling.prompt_logprobs && choice.index == 0) {
        for (std::size_t i = 1; i < spec.prompt.size(); ++i) {
          step.prompt_logprobs.push_back({{spec.prompt[i], -1.0f}, 1, {}});
        }
      }
    }
    return step;
  }

  asio::io_context io_{1};
  asio::thread_pool workshop_{1};
  ManualClock clock_;
  Random random_{1};
  router::ModelRegistry registry_{{}};
  router::Dispatcher dispatcher_{registry_, clock_, random_, {}, {}, 16};
  Outbox outbox_;
  router::TenantLimiter tenants_{{1u << 20, 0, 0}};
  router::Proxy proxy_{
      dispatcher_, registry_, tenants_,
      workshop_,   clock_,    random_,
      {},          {},        log::Logger(std::make_shared<NullSink>(), log::Level::error, log::Format::logfmt)};
  router::PublicApi api_{proxy_, registry_, tenants_, workshop_, clock_, {{"*"}, true, "0"}};
  http::Handler handler_ = api_.handler();
  router::ServedModel* model_ = nullptr;
  router::WorkerRef worker_;
  std::uint64_t requests_seen_ = 0;
  bool refuses_ = false;
};

}  // namespace
}  // namespace penstock::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace penstock;
  static fuzz::Doors doors;
  fuzz::Input input(data, size);
  constexpr std::string_view paths[] = {"/v1/chat/completions", "/v1/completions", "/tokenize",
                                        "/detokenize",          "/v1/messages",    "/v1/messages/count_tokens"};
  const std::uint8_t chosen = input.byte();
  const std::uint8_t behaviour = input.byte();
  http::Request request;
  request.method = (chosen & 0x40) != 0 ? "GET" : "POST";
  request.id = "request";
  request.headers.add("host", "localhost");
  request.headers.add("content-type", "application/json");
  if ((chosen & 0x20) != 0) request.headers.add("origin", "null");
  if ((chosen & 0x10) != 0) request.headers.add("x-penstock-explain", "1");
  if ((chosen & 0x80) != 0) {
    request.path = "/" + std::string(input.text(chosen & 0x0fu));
  } else {
    request.path = paths[chosen % std::size(paths)];
  }
  request.body = input.rest();
  doors.serve(std::move(request), behaviour);
  return 0;
}
