// ModelSpec from GGUF metadata. Keys of the architecture that are not listed here may change the arithmetic, so they
// are refused by name.
#include <algorithm>
#include <array>
#include <limits>
#include <string>

#include "worker/model/gguf.hpp"
#include "worker/model/model_spec.hpp"

namespace penstock::worker {
namespace {

constexpr std::array<std::string_view, 4> architectures{"llama", "qwen2", "qwen3", "qwen3moe"};

/// Keys below "<architecture>." that are read below or change nothing.
constexpr std::array<std::string_view, 35> known_keys{"block_count",
                                                      "context_length",
                                                      "embedding_length",
                                                      "feed_forward_length",
                                                      "attention.head_count",
                                                      "attention.head_count_kv",
                                                      "attention.layer_norm_rms_epsilon",
                                                      "attention.key_length",
                                                      "attention.value_length",
                                                      "attention.sliding_window",
                                                      "attention.causal",
                                                      "vocab_size",
                                                      "rope.dimension_count",
                                                      "rope.freq_base",
                                                      "rope.scale_linear",
                                                      "rope.scaling.type",
                                                      "rope.scaling.factor",
                                                      "rope.scaling.original_context_length",
                                                      "rope.scaling.attn_factor",
                                                      "rope.scaling.finetuned",
                                                      "rope.scaling.yarn_ext_factor",
                                                      "rope.scaling.yarn_attn_factor",
                                                      "rope.scaling.yarn_beta_fast",
                                                      "rope.scaling.yarn_beta_slow",
                                                      "rope.scaling.yarn_log_multiplier",
                                                      "expert_count",
                                                      "expert_used_count",
                                                      "expert_feed_forward_length",
                                                      "use_parallel_residual",
                                                      "tensor_data_layout",
                                                      "attention.layer_norm_epsilon",
                                                      "attention.max_alibi_bias",
                                                      "attention.clamp_kqv",
                                                      "final_logit_softcapping",
                                                      "attn_logit_softcapping"};

Error refuse(const std::string& why) {
  return make_error(ErrorCode::unsupported, "GGUF: " + why);
}

class Reader {
 public:
  Reader(const GgufFile& file, std::string architecture) : file_(file), prefix_(std::move(architecture) + ".") {}

  std::string key(std::string_view name) const { return prefix_ + std::string(name); }

  Result<std::uint32_t> required(std::string_view name) const {
    PENSTOCK_TRY(const auto value, file_.find_uint(key(name)));
    if (!value) return make_error(ErrorCode::data_loss, "GGUF: metadata " + key(name) + " is missing");
    return narrow(name, *value);
  }
  Result<std::uint32_t> optional(std::string_view name, std::uint32_t fallback) const {
    PENSTOCK_TRY(const auto value, file_.find_uint(key(name)));
    if (!value) return fallback;
    return narrow(name, *value);
  }
  Result<double> number(std::string_view name, double fallback) const {
    PENSTOCK_TRY(const auto value, file_.find_number(key(name)));
    return value.value_or(fallback);
  }

 private:
  Result<std::uint32_t> narrow(std::string_view name, std::uint64_t value) const {
    if (value > std::numeric_limits<std::uint32_t>::max()) {
      return make_error(ErrorCode::data_loss, "GGUF: metadata " + key(name) + " is " + std::to_string(value));
    }
    return static_cast<std::uint32_t>(value);
  }
  const GgufFile& file_;
  std::string prefix_;
};

Result<void> refuse_unknown_keys(const GgufFile& file, const Reader& reader) {
  for (const std::string_view full : file.keys()) {
    const std::string prefix = reader.key("");
    if (!full.starts_with(prefix)) continue;
    const std::string_view name = full.substr(prefix.size());
    if (std::find(known_keys.begin(), known_keys.end(), name) == known_keys.end()) {
      return refuse("metadata " + std::string(full) + " is not supported");
    }
  }
  for (const std::string_view name :
       {"attention.sliding_window", "attention.max_alibi_bias", "attention.clamp_kqv", "final_logit_softcapping",
        "attn_logit_softcapping", "rope.scaling.yarn_log_multiplier"}) {
    PENSTOCK_TRY(const double value, reader.number(name, 0));
    if (value != 0) return refuse("metadata " + reader.key(name) + " is set; that is not supported");
  }
  PENSTOCK_TRY(const auto causal, file.find_bool(reader.key("attention.causal")));
  if (!causal.value_or(true))
    return refuse("metadata " + reader.key("attention.causal") + " is false; that is not supported");
  return {};
}

/// Experts in every layer, for the architectures that have them; their weights are always divided by their sum.
Result<void> read_ffn(const Reader& reader, ModelSpec& spec) {
  PENSTOCK_TRY(const std::uint32_t count, reader.optional("expert_count", 0));
  const bool has_own_size = spec.architecture == "qwen3moe";
  if (count == 0 && !has_own_size) {
    PENSTOCK_TRY(spec.ffn, reader.required("feed_forward_length"));
    return {};
  }
  if (spec.architecture != "llama" && !has_own_size)
    return refuse("metadata " + reader.key("expert_count") + " is set; that is not supported");
  ExpertSpec& experts = spec.experts.emplace();
  experts.count = count;
  experts.renormalises = true;
  PENSTOCK_TRY(experts.per_token, reader.required("expert_used_count"));
  PENSTOCK_TRY(experts.ffn, reader.required(has_own_size ? "expert_feed_forward_length" : "feed_forward_length"));
  return {};
}

Result<void> read_rope(const GgufFile& file, const Reader& reader, ModelSpec& spec) {
  RopeSpec& rope = spec.rope;
  // Files of the Llama family hold q and k with interleaved pairs, those of Qwen as the original checkpoints do.
  rope.style =
      spec.architecture == "llama" ? kernels::cpu::RopeStyle::interleaved : kernels::cpu::RopeStyle::half_split;
  PENSTOCK_TRY(rope.rotary_dim, reader.optional("rope.dimension_count", spec.head_dim));
  PENSTOCK_TRY(rope.theta, reader.number("rope.freq_base", 10000));
  PENSTOCK_TRY(const auto type, file.find_text(reader.key("rope.scaling.type")));
  PENSTOCK_TRY(const double old_factor, reader.number("rope.scale_linear", 1));
  PENSTOCK_TRY(rope.factor, reader.number("rope.scaling.factor", old_factor));
  PENSTOCK_TRY(rope.original_context, reader.optional("rope.scaling.original_context_length", spec.context_tokens));
  if (rope.factor == 0) rope.factor = 1;
  const std::string_view name = type.value_or(rope.factor == 1 ? "none" : "linear");
  if (name == "none" || name.empty()) {
    rope.factor = 1;
  } else if (name == "linear") {
    rope.scaling = RopeScaling::linear;
  } else if (name == "yarn") {
    rope.scaling = RopeScaling::yarn;
    PENSTOCK_TRY(rope.beta_fast, reader.number("rope.scaling.yarn_beta_fast", 32));
    PENSTOCK_TRY(rope.beta_slow, reader.number("rope.scaling.yarn_beta_slow", 1));
    PENSTOCK_TRY(const double own, reader.number("rope.scaling.attn_factor", 1));
    PENSTOCK_TRY(const double multiplier, reader.number("rope.scaling.yarn_attn_factor", own));
    PENSTOCK_TRY(const double extrapolation, reader.number("rope.scaling.yarn_ext_factor", 1));
    if (multiplier != 1) return refuse("an attention factor for rope scaling yarn is not supported");
    if (extrapolation != 1)
      return refuse("metadata " + reader.key("rope.scaling.yarn_ext_factor") + " is not supported");
  } else {
    return refuse("rope scaling type \"" + std::string(name) + "\" is not supported");
  }
  return {};
}

}  // namespace

Result<ModelSpec> spec_from_gguf(const GgufFile& file) {
  PENSTOCK_TRY(const auto architecture, file.find_text("general.architecture"));
  if (!architecture) return make_error(ErrorCode::data_loss, "GGUF: metadata general.architecture is missing");
  if (std::find(architectures.begin(), architectures.end(), *architecture) == architectures.end()) {
    return refuse("architecture \"" + std::string(*architecture) + "\" is not supported");
  }
  ModelSpec spec;
  spec.architecture = *architecture;
  const Reader reader(file, spec.architecture);
  PENSTOCK_TRY_VOID(refuse_unknown_keys(file, reader));
  PENSTOCK_TRY(const auto name, file.find_text("general.name"));
  spec.name = name.value_or("");
  PENSTOCK_TRY(spec.layers, reader.required("block_count"));
  PENSTOCK_TRY(spec.hidden, reader.required("embedding_length"));
  PENSTOCK_TRY(spec.heads, reader.required("attention.head_count"));
  PENSTOCK_TRY(spec.kv_heads, reader.optional("attention.head_count_kv", spec.heads));
  PENSTOCK_TRY_VOID(read_ffn(reader, spec));
  PENSTOCK_TRY(spec.context_tokens, reader.required("context_length"));
  if (spec.heads == 0) return refuse("metadata " + reader.key("attention.head_count") + " is 0");
  PENSTOCK_TRY(spec.head_dim, reader.optional("attention.key_length", spec.hidden / spec.heads));
  PENSTOCK_TRY(const std::uint32_t value_dim, reader.optional("attention.value_length", spec.head_dim));
  if (value_dim != spec.head_dim) return refuse("keys and values of different length are not supported");
  PENSTOCK_TRY(const auto epsilon, file.find_number(reader.key("attention.layer_norm_rms_epsilon")));
  if (!epsilon)
    return make_error(ErrorCode::data_loss,
                      "GGUF: metadata " + reader.key("attention.layer_norm_rms_epsilon") + " is missing");
  spec.norm_epsilon = static_cast<float>(*epsilon);
  PENSTOCK_TRY_VOID(read_rope(file, reader, spec));

  PENSTOCK_TRY(const TensorTable tensors, file.tensors());
  const auto embedding = tensors.tensors().find("token_embd.weight");
  if (embedding == tensors.tensors().end())
    return make_error(ErrorCode::data_loss, "tensor token_embd.weight is missing");
  if (embedding->second.rows > std::numeric_limits<std::uint32_t>::max()) return refuse("the vocabulary is too large");
  PENSTOCK_TRY(spec.vocabulary, reader.optional("vocab_size", static_cast<std::uint32_t>(embedding->second.rows)));
  spec.tied_embeddings = !tensors.contains("output.weight");
  spec.qkv_bias = tensors.contains("blk.0.attn_q.bias");
  spec.qk_norm = spec.architecture == "qwen3" || spec.architecture == "qwen3moe";
  const auto divisors = tensors.tensors().find("rope_freqs.weight");
  if (divisors != tensors.tensors().end()) {
    TensorTable copy;
    PENSTOCK_TRY_VOID(copy.add("rope_freqs.weight", divisors->second));
    PENSTOCK_TRY(spec.rope.frequency_divisors, copy.take_floats("rope_freqs.weight", spec.rope.rotary_dim / 2));
  }
  PENSTOCK_TRY_VOID(validate(spec));
  return spec;
}

}  // namespace penstock::worker
