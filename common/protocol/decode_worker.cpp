// Worker to router: bytes to messages.
#include "common/protocol/codec.hpp"
#include "common/protocol/wire_fields.hpp"

namespace penstock::protocol {
namespace {

using namespace detail;

PositionLogprobs read_logprobs(const wire::PositionLogprobs& in) {
  PositionLogprobs out{{in.chosen().token(), in.chosen().logprob()}, in.rank(), {}};
  out.top.reserve(in.top().size());
  for (const auto& top : in.top()) out.top.push_back({top.token(), top.logprob()});
  return out;
}

template <class In>
std::vector<PositionLogprobs> read_logprob_list(const In& in) {
  std::vector<PositionLogprobs> out;
  out.reserve(in.size());
  for (const auto& position : in) out.push_back(read_logprobs(position));
  return out;
}

ModelCard read_card(const wire::ModelCard& in) {
  ModelCard out;
  out.name = in.name();
  out.revision = in.revision();
  out.architecture = in.architecture();
  out.context_tokens = in.context_tokens();
  out.vocabulary_size = in.vocabulary_size();
  out.tokenizer_digest = in.tokenizer_digest();
  out.tokenizer_bytes = in.tokenizer_bytes();
  out.chat_template_digest = in.chat_template_digest();
  out.chat_template_bytes = in.chat_template_bytes();
  if (in.has_bos_token()) out.bos_token = in.bos_token();
  out.add_bos = in.add_bos();
  out.eos_tokens = to_vector<TokenId>(in.eos_tokens());
  out.bos_text = in.bos_text();
  out.eos_text = in.eos_text();
  if (in.has_default_temperature()) out.default_temperature = in.default_temperature();
  if (in.has_default_top_p()) out.default_top_p = in.default_top_p();
  if (in.has_default_top_k()) out.default_top_k = in.default_top_k();
  return out;
}

Welcome read_welcome(const wire::Welcome& in, Problems& problems) {
  Welcome out;
  out.version = in.version();
  out.instance = read_id<InstanceId>(in.instance(), problems);
  out.epoch = in.epoch();
  if (in.role() > static_cast<std::uint32_t>(Role::decode)) problems.add("unknown worker role");
  out.role = static_cast<Role>(in.role());
  out.card = read_card(in.card());
  if (in.block_tokens() == 0 || in.block_tokens() > 4096) problems.add("block_tokens is out of range");
  out.block_tokens = in.block_tokens();
  out.hash_scheme = in.hash_scheme();
  out.kv_dtype = in.kv_dtype();
  for (const auto& hash : in.hash_probe()) out.hash_probe.push_back(read_id<BlockHash>(hash, problems));
  out.kv_blocks = in.kv_blocks();
  out.sequences_max = in.sequences_max();
  out.tensor_parallel = in.tensor_parallel();
  out.kv_layout_fingerprint = in.kv_layout_fingerprint();
  out.kv_address = in.kv_address();
  for (const auto& label : in.topology()) out.topology.emplace_back(label.key(), label.value());
  return out;
}

Usage read_usage(const wire::Usage& in) {
  return {in.prompt_tokens(), in.cached_tokens(), in.transferred_tokens()};
}

Step read_step(const wire::Step& in, Problems& problems) {
  Step out;
  out.choices.reserve(in.choices().size());
  for (const auto& choice : in.choices()) {
    ChoiceStep step;
    step.request = read_id<RequestId>(choice.request(), problems);
    step.attempt = choice.attempt();
    step.choice = choice.choice();
    step.position = choice.position();
    step.tokens = to_vector<TokenId>(choice.tokens());
    step.logprobs = read_logprob_list(choice.logprobs());
    if (choice.finish() > static_cast<std::uint32_t>(FinishReason::aborted) + 1) problems.add("unknown finish reason");
    if (choice.finish() != 0) step.finish = static_cast<FinishReason>(choice.finish() - 1);
    if (choice.has_usage()) step.usage = read_usage(choice.usage());
    step.prompt_logprobs = read_logprob_list(choice.prompt_logprobs());
    out.choices.push_back(std::move(step));
  }
  out.progress.reserve(in.progress().size());
  for (const auto& progress : in.progress()) {
    out.progress.push_back(
        {read_id<RequestId>(progress.request(), problems), progress.attempt(), progress.computed_tokens()});
  }
  return out;
}

BlockStored read_stored(const wire::BlockStored& in, Problems& problems) {
  BlockStored out{in.position(), {}, read_ids<BlockHash>(in.blocks(), problems)};
  if (!in.parent().empty()) out.parent = read_id<BlockHash>(in.parent(), problems);
  return out;
}

CacheEvents read_cache_events(const wire::CacheEvents& in, Problems& problems) {
  CacheEvents out{in.epoch(), in.sequence(), {}};
  out.events.reserve(in.events().size());
  for (const auto& event : in.events()) {
    switch (event.kind_case()) {
      case wire::CacheEvent::kStored:
        out.events.emplace_back(read_stored(event.stored(), problems));
        break;
      case wire::CacheEvent::kRemoved:
        out.events.emplace_back(BlockRemoved{read_ids<BlockHash>(event.removed().blocks(), problems)});
        break;
      case wire::CacheEvent::kCleared:
        out.events.emplace_back(AllBlocksCleared{});
        break;
      case wire::CacheEvent::KIND_NOT_SET:
        problems.add("unknown cache event");
        break;
    }
  }
  return out;
}

Snapshot read_snapshot(const wire::Snapshot& in, Problems& problems) {
  Snapshot out{in.epoch(), in.sequence(), in.part(), in.last(), {}};
  out.stored.reserve(in.stored().size());
  for (const auto& stored : in.stored()) out.stored.push_back(read_stored(stored, problems));
  return out;
}

Load read_load(const wire::Load& in, Problems&) {
  Load out;
  out.running = in.running();
  out.waiting = in.waiting();
  out.waiting_prefill_tokens = in.waiting_prefill_tokens();
  out.context_tokens = in.context_tokens();
  out.kv_blocks_total = in.kv_blocks_total();
  out.kv_blocks_free = in.kv_blocks_free();
  out.kv_blocks_pinned = in.kv_blocks_pinned();
  out.tokens_per_second_prefill = in.tokens_per_second_prefill();
  out.step_seconds_decode = in.step_seconds_decode();
  out.draining = in.draining();
  out.requests_seen = in.requests_seen();
  return out;
}

}  // namespace

Result<WorkerMessage> decode_worker_message(std::uint16_t type, std::string_view body) {
  using Out = WorkerMessage;
  switch (static_cast<WireType>(type)) {
    case WireType::welcome:
      return parse_as<Out, wire::Welcome>(body, read_welcome);
    case WireType::blob:
      return parse_as<Out, wire::Blob>(
          body, [](const auto& in, Problems&) { return Blob{in.digest(), in.offset(), in.total_bytes(), in.bytes()}; });
    case WireType::step:
      return parse_as<Out, wire::Step>(body, read_step);
    case WireType::cache_events:
      return parse_as<Out, wire::CacheEvents>(body, read_cache_events);
    case WireType::snapshot:
      return parse_as<Out, wire::Snapshot>(body, read_snapshot);
    case WireType::load:
      return parse_as<Out, wire::Load>(body, read_load);
    case WireType::request_error:
      return parse_as<Out, wire::RequestError>(body, [](const auto& in, Problems& problems) {
        return RequestError{read_id<RequestId>(in.request(), problems), in.attempt(), read_error(in.error(), problems),
                            read_duration(in.retry_after_ns(), problems)};
      });
    case WireType::transfer_status:
      return parse_as<Out, wire::TransferStatus>(body, [](const auto& in, Problems& problems) {
        return TransferStatus{read_id<RequestId>(in.request(), problems),
                              read_id<TransferId>(in.transfer(), problems),
                              in.attempt(),
                              in.outcome(),
                              in.detail(),
                              in.bytes()};
      });
    case WireType::goodbye:
      return parse_as<Out, wire::Goodbye>(body, [](const auto& in, Problems&) { return Goodbye{in.reason()}; });
    case WireType::pong:
      return parse_as<Out, wire::Pong>(body, [](const auto& in, Problems&) { return Pong{in.nonce()}; });
    case WireType::protocol_error:
      return parse_as<Out, wire::ProtocolError>(
          body, [](const auto& in, Problems& problems) { return ProtocolError{read_error(in.error(), problems)}; });
    case WireType::hello:
    case WireType::generate:
    case WireType::prefill:
    case WireType::expect:
    case WireType::reoffer:
    case WireType::release:
    case WireType::abort:
    case WireType::snapshot_request:
    case WireType::get_blob:
    case WireType::drain:
    case WireType::ping:
      break;
  }
  return make_error(ErrorCode::invalid_argument, "unknown message type " + std::to_string(type) + " from a worker");
}

}  // namespace penstock::protocol
