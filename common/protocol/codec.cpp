// Messages to bytes, both directions: one fill() a message.
#include "common/protocol/codec.hpp"

#include "common/protocol/wire_fields.hpp"

namespace penstock::protocol {
namespace {

using namespace detail;

template <class Field>
void fill_tokens(const std::vector<TokenId>& tokens, Field* out) {
  out->Add(tokens.begin(), tokens.end());
}

void fill(const SamplingParams& in, wire::Sampling& out) {
  out.set_temperature(in.temperature);
  out.set_top_k(in.top_k);
  out.set_top_p(in.top_p);
  out.set_min_p(in.min_p);
  out.set_repetition_penalty(in.repetition_penalty);
  out.set_presence_penalty(in.presence_penalty);
  out.set_frequency_penalty(in.frequency_penalty);
  out.set_seed(in.seed);
  for (const auto& [token, bias] : in.logit_bias) {
    auto* entry = out.add_logit_bias();
    entry->set_token(token);
    entry->set_bias(bias);
  }
  fill_tokens(in.stop_token_ids, out.mutable_stop_token_ids());
  out.set_tokens_max(in.tokens_max);
  out.set_tokens_min(in.tokens_min);
  out.set_ignore_eos(in.ignore_eos);
  if (in.logprobs) out.set_logprobs(*in.logprobs);
  if (in.prompt_logprobs) out.set_prompt_logprobs(*in.prompt_logprobs);
}

void fill(const GenerateSpec& in, wire::GenerateSpec& out) {
  out.set_request(id_bytes(in.request));
  out.set_attempt(in.attempt);
  fill_tokens(in.prompt, out.mutable_prompt());
  for (const auto& choice : in.choices) {
    auto* entry = out.add_choices();
    entry->set_index(choice.index);
    fill_tokens(choice.accepted, entry->mutable_accepted());
  }
  fill(in.sampling, *out.mutable_sampling());
  out.set_cache_salt(in.cache_salt);
  out.set_adapter(in.adapter);
  out.set_priority(in.priority);
  out.set_deadline_ns(duration_field(in.deadline));
  out.set_trace(in.trace);
}

void fill(const TransferRoute& in, wire::TransferRoute& out) {
  out.set_transfer(id_bytes(in.transfer));
  out.set_attempt(in.attempt);
  out.set_peer(id_bytes(in.peer));
  out.set_peer_address(in.peer_address);
  out.set_ticket(in.ticket);
}

void fill(const Error& in, wire::Error& out) {
  out.set_code(static_cast<std::uint32_t>(in.code));
  out.set_message(in.message);
}

void fill(const PositionLogprobs& in, wire::PositionLogprobs& out) {
  out.mutable_chosen()->set_token(in.chosen.token);
  out.mutable_chosen()->set_logprob(in.chosen.logprob);
  out.set_rank(in.rank);
  for (const auto& top : in.top) {
    auto* entry = out.add_top();
    entry->set_token(top.token);
    entry->set_logprob(top.logprob);
  }
}

void fill(const ModelCard& in, wire::ModelCard& out) {
  out.set_name(in.name);
  out.set_revision(in.revision);
  out.set_architecture(in.architecture);
  out.set_context_tokens(in.context_tokens);
  out.set_vocabulary_size(in.vocabulary_size);
  out.set_tokenizer_digest(in.tokenizer_digest);
  out.set_tokenizer_bytes(in.tokenizer_bytes);
  out.set_chat_template_digest(in.chat_template_digest);
  out.set_chat_template_bytes(in.chat_template_bytes);
  if (in.bos_token) out.set_bos_token(*in.bos_token);
  out.set_add_bos(in.add_bos);
  fill_tokens(in.eos_tokens, out.mutable_eos_tokens());
  out.set_bos_text(in.bos_text);
  out.set_eos_text(in.eos_text);
  if (in.default_temperature) out.set_default_temperature(*in.default_temperature);
  if (in.default_top_p) out.set_default_top_p(*in.default_top_p);
  if (in.default_top_k) out.set_default_top_k(*in.default_top_k);
}

void fill(const BlockStored& in, wire::BlockStored& out) {
  out.set_position(in.position);
  if (!in.parent.is_zero()) out.set_parent(id_bytes(in.parent));
  for (const auto& block : in.blocks) append_id(*out.mutable_blocks(), block);
}

void fill(const ChoiceStep& in, wire::ChoiceStep& out) {
  out.set_request(id_bytes(in.request));
  out.set_attempt(in.attempt);
  out.set_choice(in.choice);
  out.set_position(in.position);
  fill_tokens(in.tokens, out.mutable_tokens());
  for (const auto& position : in.logprobs) fill(position, *out.add_logprobs());
  if (in.finish) out.set_finish(static_cast<std::uint32_t>(*in.finish) + 1);
  if (in.usage) {
    out.mutable_usage()->set_prompt_tokens(in.usage->prompt_tokens);
    out.mutable_usage()->set_cached_tokens(in.usage->cached_tokens);
    out.mutable_usage()->set_transferred_tokens(in.usage->transferred_tokens);
  }
  for (const auto& position : in.prompt_logprobs) fill(position, *out.add_prompt_logprobs());
}

// ---- One overload a message: its wire type and its fields. --------------------------------------------------------

template <class Wire>
EncodedMessage finish(WireType type, const Wire& message) {
  return {static_cast<std::uint16_t>(type), message.SerializeAsString()};
}

EncodedMessage encode_one(const Hello& in) {
  wire::Hello out;
  out.set_version(in.version);
  out.set_router_id(in.router_id);
  out.set_model(in.model);
  fill_tokens(in.hash_probe_tokens, out.mutable_hash_probe_tokens());
  return finish(WireType::hello, out);
}
EncodedMessage encode_one(const Generate& in) {
  wire::Generate out;
  fill(in.spec, *out.mutable_spec());
  return finish(WireType::generate, out);
}
EncodedMessage encode_one(const Prefill& in) {
  wire::Prefill out;
  fill(in.spec, *out.mutable_spec());
  fill(in.route, *out.mutable_route());
  return finish(WireType::prefill, out);
}
EncodedMessage encode_one(const Expect& in) {
  wire::Expect out;
  fill(in.spec, *out.mutable_spec());
  fill(in.route, *out.mutable_route());
  return finish(WireType::expect, out);
}
EncodedMessage encode_one(const Reoffer& in) {
  wire::Reoffer out;
  out.set_request(id_bytes(in.request));
  fill(in.route, *out.mutable_route());
  return finish(WireType::reoffer, out);
}
EncodedMessage encode_one(const Release& in) {
  wire::Release out;
  out.set_request(id_bytes(in.request));
  out.set_transfer(id_bytes(in.transfer));
  out.set_attempt(in.attempt);
  return finish(WireType::release, out);
}
EncodedMessage encode_one(const Abort& in) {
  wire::Abort out;
  out.set_request(id_bytes(in.request));
  if (in.choice) out.set_choice(*in.choice);
  out.set_tokens_kept(in.tokens_kept);
  out.set_reason(in.reason);
  return finish(WireType::abort, out);
}
EncodedMessage encode_one(const SnapshotRequest&) {
  return finish(WireType::snapshot_request, wire::SnapshotRequest());
}
EncodedMessage encode_one(const GetBlob& in) {
  wire::GetBlob out;
  out.set_digest(in.digest);
  return finish(WireType::get_blob, out);
}
EncodedMessage encode_one(const Drain& in) {
  wire::Drain out;
  out.set_grace_ns(duration_field(in.grace));
  return finish(WireType::drain, out);
}
EncodedMessage encode_one(const Ping& in) {
  wire::Ping out;
  out.set_nonce(in.nonce);
  return finish(WireType::ping, out);
}

EncodedMessage encode_one(const Welcome& in) {
  wire::Welcome out;
  out.set_version(in.version);
  out.set_instance(id_bytes(in.instance));
  out.set_epoch(in.epoch);
  out.set_role(static_cast<std::uint32_t>(in.role));
  fill(in.card, *out.mutable_card());
  out.set_block_tokens(in.block_tokens);
  out.set_hash_scheme(in.hash_scheme);
  out.set_kv_dtype(in.kv_dtype);
  for (const auto& hash : in.hash_probe) out.add_hash_probe(id_bytes(hash));
  out.set_kv_blocks(in.kv_blocks);
  out.set_sequences_max(in.sequences_max);
  out.set_tensor_parallel(in.tensor_parallel);
  out.set_kv_layout_fingerprint(in.kv_layout_fingerprint);
  out.set_kv_address(in.kv_address);
  for (const auto& [key, value] : in.topology) {
    auto* label = out.add_topology();
    label->set_key(key);
    label->set_value(value);
  }
  return finish(WireType::welcome, out);
}
EncodedMessage encode_one(const Blob& in) {
  wire::Blob out;
  out.set_digest(in.digest);
  out.set_offset(in.offset);
  out.set_total_bytes(in.total_bytes);
  out.set_bytes(in.bytes);
  return finish(WireType::blob, out);
}
EncodedMessage encode_one(const Step& in) {
  wire::Step out;
  for (const auto& choice : in.choices) fill(choice, *out.add_choices());
  for (const auto& progress : in.progress) {
    auto* entry = out.add_progress();
    entry->set_request(id_bytes(progress.request));
    entry->set_attempt(progress.attempt);
    entry->set_computed_tokens(progress.computed_tokens);
  }
  return finish(WireType::step, out);
}
EncodedMessage encode_one(const CacheEvents& in) {
  wire::CacheEvents out;
  out.set_epoch(in.epoch);
  out.set_sequence(in.sequence);
  for (const auto& event : in.events) {
    auto* entry = out.add_events();
    if (const auto* stored = std::get_if<BlockStored>(&event)) {
      fill(*stored, *entry->mutable_stored());
    } else if (const auto* removed = std::get_if<BlockRemoved>(&event)) {
      auto& blocks = *entry->mutable_removed()->mutable_blocks();  // here: an empty list is a removal too
      for (const auto& block : removed->blocks) append_id(blocks, block);
    } else {
      entry->mutable_cleared();
    }
  }
  return finish(WireType::cache_events, out);
}
EncodedMessage encode_one(const Snapshot& in) {
  wire::Snapshot out;
  out.set_epoch(in.epoch);
  out.set_sequence(in.sequence);
  out.set_part(in.part);
  out.set_last(in.last);
  for (const auto& stored : in.stored) fill(stored, *out.add_stored());
  return finish(WireType::snapshot, out);
}
EncodedMessage encode_one(const Load& in) {
  wire::Load out;
  out.set_running(in.running);
  out.set_waiting(in.waiting);
  out.set_waiting_prefill_tokens(in.waiting_prefill_tokens);
  out.set_context_tokens(in.context_tokens);
  out.set_kv_blocks_total(in.kv_blocks_total);
  out.set_kv_blocks_free(in.kv_blocks_free);
  out.set_kv_blocks_pinned(in.kv_blocks_pinned);
  out.set_tokens_per_second_prefill(in.tokens_per_second_prefill);
  out.set_step_seconds_decode(in.step_seconds_decode);
  out.set_draining(in.draining);
  out.set_requests_seen(in.requests_seen);
  return finish(WireType::load, out);
}
EncodedMessage encode_one(const RequestError& in) {
  wire::RequestError out;
  out.set_request(id_bytes(in.request));
  out.set_attempt(in.attempt);
  fill(in.error, *out.mutable_error());
  out.set_retry_after_ns(duration_field(in.retry_after));
  return finish(WireType::request_error, out);
}
EncodedMessage encode_one(const TransferStatus& in) {
  wire::TransferStatus out;
  out.set_request(id_bytes(in.request));
  out.set_transfer(id_bytes(in.transfer));
  out.set_attempt(in.attempt);
  out.set_outcome(in.outcome);
  out.set_detail(in.detail);
  out.set_bytes(in.bytes);
  return finish(WireType::transfer_status, out);
}
EncodedMessage encode_one(const Goodbye& in) {
  wire::Goodbye out;
  out.set_reason(in.reason);
  return finish(WireType::goodbye, out);
}
EncodedMessage encode_one(const Pong& in) {
  wire::Pong out;
  out.set_nonce(in.nonce);
  return finish(WireType::pong, out);
}
EncodedMessage encode_one(const ProtocolError& in) {
  wire::ProtocolError out;
  fill(in.error, *out.mutable_error());
  return finish(WireType::protocol_error, out);
}

}  // namespace

EncodedMessage encode(const RouterMessage& message) {
  return std::visit([](const auto& one) { return encode_one(one); }, message);
}
EncodedMessage encode(const WorkerMessage& message) {
  return std::visit([](const auto& one) { return encode_one(one); }, message);
}

}  // namespace penstock::protocol
