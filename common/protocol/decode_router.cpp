// Router to worker: bytes to messages.
#include "common/protocol/codec.hpp"
#include "common/protocol/wire_fields.hpp"

namespace penstock::protocol {
namespace {

using namespace detail;

constexpr std::size_t trace_bytes_max = 64;  // a traceparent has 55

SamplingParams read_sampling(const wire::Sampling& in) {
  SamplingParams out;
  out.temperature = in.temperature();
  out.top_k = in.top_k();
  out.top_p = in.top_p();
  out.min_p = in.min_p();
  out.repetition_penalty = in.repetition_penalty();
  out.presence_penalty = in.presence_penalty();
  out.frequency_penalty = in.frequency_penalty();
  out.seed = in.seed();
  out.logit_bias.reserve(in.logit_bias().size());
  for (const auto& bias : in.logit_bias()) out.logit_bias.emplace_back(bias.token(), bias.bias());
  out.stop_token_ids = to_vector<TokenId>(in.stop_token_ids());
  out.tokens_max = in.tokens_max();
  out.tokens_min = in.tokens_min();
  out.ignore_eos = in.ignore_eos();
  if (in.has_logprobs()) out.logprobs = in.logprobs();
  if (in.has_prompt_logprobs()) out.prompt_logprobs = in.prompt_logprobs();
  return out;
}

GenerateSpec read_spec(const wire::GenerateSpec& in, Problems& problems) {
  GenerateSpec out;
  out.request = read_id<RequestId>(in.request(), problems);
  out.attempt = in.attempt();
  out.prompt = to_vector<TokenId>(in.prompt());
  for (const auto& choice : in.choices()) {
    out.choices.push_back({choice.index(), to_vector<TokenId>(choice.accepted())});
  }
  out.sampling = read_sampling(in.sampling());
  out.cache_salt = in.cache_salt();
  out.adapter = in.adapter();
  out.priority = in.priority();
  out.deadline = read_duration(in.deadline_ns(), problems);
  out.trace = in.trace();
  if (out.trace.size() > trace_bytes_max) problems.add("a trace is too long");
  return out;
}

TransferRoute read_route(const wire::TransferRoute& in, Problems& problems) {
  return {read_id<TransferId>(in.transfer(), problems), in.attempt(), read_id<InstanceId>(in.peer(), problems),
          in.peer_address(), in.ticket()};
}

Abort read_abort(const wire::Abort& in, Problems& problems) {
  Abort out{read_id<RequestId>(in.request(), problems), std::nullopt, in.tokens_kept(), in.reason()};
  if (in.has_choice()) out.choice = in.choice();
  return out;
}

}  // namespace

Result<RouterMessage> decode_router_message(std::uint16_t type, std::string_view body) {
  using Out = RouterMessage;
  switch (static_cast<WireType>(type)) {
    case WireType::hello:
      return parse_as<Out, wire::Hello>(body, [](const auto& in, Problems&) {
        return Hello{in.version(), in.router_id(), in.model(), to_vector<TokenId>(in.hash_probe_tokens())};
      });
    case WireType::generate:
      return parse_as<Out, wire::Generate>(
          body, [](const auto& in, Problems& problems) { return Generate{read_spec(in.spec(), problems)}; });
    case WireType::prefill:
      return parse_as<Out, wire::Prefill>(body, [](const auto& in, Problems& problems) {
        return Prefill{read_spec(in.spec(), problems), read_route(in.route(), problems)};
      });
    case WireType::expect:
      return parse_as<Out, wire::Expect>(body, [](const auto& in, Problems& problems) {
        return Expect{read_spec(in.spec(), problems), read_route(in.route(), problems)};
      });
    case WireType::reoffer:
      return parse_as<Out, wire::Reoffer>(body, [](const auto& in, Problems& problems) {
        return Reoffer{read_id<RequestId>(in.request(), problems), read_route(in.route(), problems)};
      });
    case WireType::release:
      return parse_as<Out, wire::Release>(body, [](const auto& in, Problems& problems) {
        return Release{read_id<RequestId>(in.request(), problems), read_id<TransferId>(in.transfer(), problems),
                       in.attempt()};
      });
    case WireType::abort:
      return parse_as<Out, wire::Abort>(body, read_abort);
    case WireType::snapshot_request:
      return parse_as<Out, wire::SnapshotRequest>(body, [](const auto&, Problems&) { return SnapshotRequest{}; });
    case WireType::get_blob:
      return parse_as<Out, wire::GetBlob>(body, [](const auto& in, Problems&) { return GetBlob{in.digest()}; });
    case WireType::drain:
      return parse_as<Out, wire::Drain>(
          body, [](const auto& in, Problems& problems) { return Drain{read_duration(in.grace_ns(), problems)}; });
    case WireType::ping:
      return parse_as<Out, wire::Ping>(body, [](const auto& in, Problems&) { return Ping{in.nonce()}; });
    case WireType::welcome:
    case WireType::blob:
    case WireType::step:
    case WireType::cache_events:
    case WireType::snapshot:
    case WireType::load:
    case WireType::request_error:
    case WireType::transfer_status:
    case WireType::goodbye:
    case WireType::pong:
    case WireType::protocol_error:
      break;
  }
  return make_error(ErrorCode::invalid_argument, "unknown message type " + std::to_string(type) + " from a router");
}

}  // namespace penstock::protocol
