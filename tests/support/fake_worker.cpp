#include "tests/support/fake_worker.hpp"

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "common/async/deadline.hpp"
#include "common/protocol/codec.hpp"
#include "common/text/block_hash.hpp"
#include "tests/support/byte_tokenizer.hpp"

namespace penstock::test {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

template <class... Handlers>
struct Overload : Handlers... {
  using Handlers::operator()...;
};
template <class... Handlers>
Overload(Handlers...) -> Overload<Handlers...>;

protocol::PositionLogprobs scripted_logprobs(TokenId token, std::uint32_t count) {
  protocol::PositionLogprobs logprobs;
  logprobs.chosen = {token, -0.25f};
  logprobs.rank = 1;
  for (std::uint32_t i = 0; i < count; ++i) {
    logprobs.top.push_back({(token + i) % 256, -0.25f - static_cast<float>(i)});
  }
  return logprobs;
}

}  // namespace

FakeWorker::FakeWorker(asio::any_io_executor executor, FakeWorkerOptions options)
    : options_(std::move(options)),
      instance_(random_id<InstanceId>()),
      acceptor_(executor, tcp::endpoint(asio::ip::address_v4::loopback(), 0)),
      tasks_(executor),
      refusals_left_(options_.faults.refuses) {
  tasks_.spawn("accept", accept_loop());
}

FakeWorker::~FakeWorker() {
  die();
}

std::string FakeWorker::address() const {
  return "127.0.0.1:" + std::to_string(is_dead_ ? 1 : acceptor_.local_endpoint().port());
}

void FakeWorker::die() {
  if (is_dead_) return;
  is_dead_ = true;
  boost::system::error_code ignored;
  acceptor_.close(ignored);
  if (connection_) connection_->close();
}

asio::awaitable<void> FakeWorker::accept_loop() {
  while (!is_dead_) {
    auto [error, socket] = co_await acceptor_.async_accept(asio::as_tuple(asio::use_awaitable));
    if (error) co_return;
    connection_ = std::make_shared<async::FrameConnection>(async::Stream(std::move(socket)));
    tasks_.spawn("serve", serve(connection_));
  }
}

asio::awaitable<void> FakeWorker::serve(std::shared_ptr<async::FrameConnection> connection) {
  for (;;) {
    auto frame = co_await connection->read(std::chrono::seconds(60));
    if (!frame) co_return;
    auto message = protocol::decode_router_message(frame->type, frame->body);
    if (!message) co_return connection->close();
    handle(std::move(*message));
  }
}

void FakeWorker::send(const protocol::WorkerMessage& message) {
  if (is_dead_ || !connection_) return;
  const auto encoded = protocol::encode(message);
  connection_->send(encoded.type, encoded.body);
}

void FakeWorker::handle(protocol::RouterMessage message) {
  std::visit(Overload{
                 [&](protocol::Hello& hello) {
                   send(welcome(hello));
                   send(load());
                 },
                 [&](protocol::GetBlob& blob) {
                   ++blobs_asked_;
                   if (options_.faults.blob_drops > 0) {
                     --options_.faults.blob_drops;
                     return connection_->close();
                   }
                   std::string bytes = blob.digest == "tokenizer" ? byte_tokenizer_json() : chat_template();
                   const std::size_t total = bytes.size();
                   send(protocol::Blob{blob.digest, 0, total, std::move(bytes)});
                 },
                 [&](protocol::Generate& generate_message) {
                   generates_.push_back(generate_message);
                   if (is_refused(generate_message.spec)) return;
                   tasks_.spawn("generate", generate(std::move(generate_message.spec), 0, 0));
                 },
                 [&](protocol::Prefill& prefill) {
                   prefills_.push_back(prefill);
                   if (is_refused(prefill.spec)) return;
                   tasks_.spawn("prefill", generate(std::move(prefill.spec), 0, 1));
                 },
                 [&](protocol::Expect& expect) {
                   expects_.push_back(expect);
                   if (is_refused(expect.spec)) return;
                   send(protocol::TransferStatus{expect.spec.request, expect.route.transfer, expect.route.attempt,
                                                 "committed", "", 0});
                   tasks_.spawn("expect", generate(std::move(expect.spec), 1, 0));
                 },
                 [&](protocol::Abort& abort) {
                   aborts_.push_back(abort);
                   if (!abort.choice) aborted_.insert(abort.request);
                 },
                 [&](protocol::Ping& ping) { send(protocol::Pong{ping.nonce}); },
                 [&](protocol::SnapshotRequest&) { send(protocol::Snapshot{1, 0, 0, true, {}}); },
                 [](protocol::Reoffer&) {},
                 [](protocol::Release&) {},
                 [](protocol::Drain&) {},
             },
             message);
}

bool FakeWorker::is_refused(const protocol::GenerateSpec& spec) {
  ++requests_seen_;
  if (refusals_left_ == 0) return false;
  --refusals_left_;
  send(protocol::RequestError{spec.request, spec.attempt, options_.faults.refusal, {}});
  return true;
}

protocol::Welcome FakeWorker::welcome(const protocol::Hello& hello) const {
  protocol::Welcome welcome;
  welcome.instance = instance_;
  welcome.epoch = 1;
  welcome.role = options_.role;
  welcome.card.name = options_.model;
  welcome.card.revision = "revision";
  welcome.card.architecture = "llama";
  welcome.card.context_tokens = options_.context_tokens;
  welcome.card.vocabulary_size = byte_vocabulary_size;
  welcome.card.tokenizer_digest = "tokenizer";
  welcome.card.tokenizer_bytes = byte_tokenizer_json().size();
  welcome.card.chat_template_digest = "template";
  welcome.card.chat_template_bytes = chat_template().size();
  welcome.card.eos_tokens = {im_end};
  welcome.card.eos_text = "<|im_end|>";
  welcome.kv_dtype = "bf16";
  welcome.kv_blocks = kv_blocks();
  welcome.sequences_max = options_.sequences_max;
  welcome.kv_layout_fingerprint = "layout";
  welcome.kv_address = "127.0.0.1:1";
  const text::BlockHasher hasher(text::local_block_hash_key(), {"revision", "bf16", {}, {}}, welcome.block_tokens);
  welcome.hash_scheme = hasher.scheme_name();
  welcome.hash_probe = hasher.hash_blocks(hello.hash_probe_tokens);
  if (options_.faults.has_wrong_hashes) welcome.hash_probe.front().low ^= 1;
  return welcome;
}

std::string FakeWorker::chat_template() const {
  return options_.chat_template.empty() ? std::string(chat_template_source()) : options_.chat_template;
}

std::uint64_t FakeWorker::kv_blocks() const {
  return std::max<std::uint64_t>(10'000, options_.context_tokens / 16 + 1);
}

protocol::Load FakeWorker::load() const {
  protocol::Load load;
  load.kv_blocks_total = load.kv_blocks_free = kv_blocks();
  load.requests_seen = requests_seen_;
  return load;
}

TokenId FakeWorker::token(std::uint32_t choice, std::uint32_t position) const {
  if (options_.ends_at != 0 && position == options_.ends_at) return im_end;
  return static_cast<unsigned char>(options_.text[(position + options_.choice_shift * choice) % options_.text.size()]);
}

std::optional<protocol::ChoiceStep> FakeWorker::step(const protocol::GenerateSpec& spec, const protocol::Choice& choice,
                                                     std::uint32_t position) const {
  const auto& sampling = spec.sampling;
  if (position >= std::max<std::uint32_t>(sampling.tokens_max, 1)) return std::nullopt;
  const bool has_ended = options_.ends_at != 0 && position > options_.ends_at && !sampling.ignore_eos;
  if (has_ended) return std::nullopt;
  protocol::ChoiceStep step;
  step.request = spec.request;
  step.attempt = spec.attempt;
  step.choice = choice.index;
  step.position = position;
  if (sampling.tokens_max > 0) {
    const TokenId drawn = token(choice.index, position);
    step.tokens = {drawn};
    if (sampling.logprobs) step.logprobs = {scripted_logprobs(drawn, *sampling.logprobs)};
    const bool is_stop = std::find(sampling.stop_token_ids.begin(), sampling.stop_token_ids.end(), drawn) !=
                         sampling.stop_token_ids.end();
    if ((drawn == im_end && !sampling.ignore_eos) || is_stop) step.finish = protocol::FinishReason::stop;
  }
  if (!step.finish && position + 1 >= sampling.tokens_max) step.finish = protocol::FinishReason::length;
  if (position == choice.accepted.size()) {
    step.usage = protocol::Usage{static_cast<std::uint32_t>(spec.prompt.size()), options_.cached_tokens, 0};
    if (sampling.prompt_logprobs && choice.index == 0) {
      for (std::size_t i = 1; i < spec.prompt.size(); ++i) {
        step.prompt_logprobs.push_back(scripted_logprobs(spec.prompt[i], *sampling.prompt_logprobs));
      }
    }
  }
  return step;
}

asio::awaitable<void> FakeWorker::generate(protocol::GenerateSpec spec, std::uint32_t begin, std::uint32_t end) {
  std::vector<std::uint32_t> positions;
  for (const auto& choice : spec.choices) {
    positions.push_back(std::max(begin, static_cast<std::uint32_t>(choice.accepted.size())));
  }
  for (bool is_moving = true; is_moving && !is_dead_;) {
    if (options_.step_time > Duration{}) {
      co_await async::pause(options_.step_time);
    } else {
      co_await asio::post(asio::use_awaitable);
    }
    if (aborted_.contains(spec.request)) co_return;
    is_moving = false;
    protocol::Step frame;
    for (std::size_t i = 0; i < spec.choices.size(); ++i) {
      const std::uint32_t position = positions[i]++;
      if (end != 0 && position >= end) continue;
      if (options_.faults.dies_before != 0 && position == options_.faults.dies_before) co_return die();
      if (options_.faults.stalls_before != 0 && position == options_.faults.stalls_before) co_return;
      auto one = step(spec, spec.choices[i], position);
      if (!one) continue;
      is_moving = true;
      if (options_.faults.gap_before != 0 && position == options_.faults.gap_before) continue;
      if (options_.faults.repeats_at != 0 && position == options_.faults.repeats_at) frame.choices.push_back(*one);
      const bool is_last = one->finish.has_value();
      frame.choices.push_back(std::move(*one));
      if (is_last) positions[i] = 0xFFFFFFF0u;
    }
    if (!frame.choices.empty()) send(frame);
  }
  send(load());
}

}  // namespace penstock::test
