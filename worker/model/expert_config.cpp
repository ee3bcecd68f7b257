#include "worker/model/expert_config.hpp"

#include <string>

namespace penstock::worker {

using config_json::Config;
using config_json::refuse;

namespace {

constexpr const char* shared_keys[] = {"shared_expert_intermediate_size", "n_shared_experts", "num_shared_experts"};

Result<void> refuse_other_layers(const Config& config) {
  PENSTOCK_TRY(const auto step, config.find("decoder_sparse_step"));
  if (step.value_or(1) != 1) return refuse("decoder_sparse_step other than 1 is not supported");
  if (config.is_set("mlp_only_layers")) {
    PENSTOCK_TRY(const json::Array* dense, json::required<const json::Array*>(config.object(), "mlp_only_layers", {}));
    if (!dense->empty()) return refuse("mlp_only_layers that names layers is not supported");
  }
  for (const char* key : shared_keys) {
    PENSTOCK_TRY(const auto shared, config.find(key));
    if (shared.value_or(0) != 0) return refuse(std::string(key) + " is set; shared experts are not supported");
  }
  return {};
}

Result<void> read_gpt_oss(const Config& config, ExpertSpec& experts) {
  PENSTOCK_TRY(const double limit, config.number("swiglu_limit", 7));
  if (limit != 7) return refuse("swiglu_limit other than 7 is not supported");
  experts.biases = true;
  experts.activation = kernels::cpu::GatedActivation::clamped;
  return {};
}

}  // namespace

Result<std::optional<ExpertSpec>> read_experts(const Config& config, std::string_view class_name) {
  const bool is_gpt_oss = class_name == "GptOssForCausalLM";
  const bool is_mixtral = class_name == "MixtralForCausalLM";
  const bool has_own_size = !is_mixtral && !is_gpt_oss;
  if (has_own_size && class_name != "Qwen3MoeForCausalLM") {
    for (const char* key : {"num_experts", "num_local_experts"}) {
      if (config.is_set(key)) return refuse(std::string(key) + " is set; that is not supported");
    }
    return std::optional<ExpertSpec>();
  }
  PENSTOCK_TRY_VOID(refuse_other_layers(config));
  ExpertSpec experts;
  PENSTOCK_TRY(experts.count, config.required(has_own_size ? "num_experts" : "num_local_experts"));
  PENSTOCK_TRY(experts.per_token, config.required("num_experts_per_tok"));
  PENSTOCK_TRY(experts.ffn, config.required(has_own_size ? "moe_intermediate_size" : "intermediate_size"));
  PENSTOCK_TRY(const bool renormalises, config.flag("norm_topk_prob"));
  experts.renormalises = !has_own_size || renormalises;
  if (is_gpt_oss) PENSTOCK_TRY_VOID(read_gpt_oss(config, experts));
  return std::optional<ExpertSpec>(experts);
}

}  // namespace penstock::worker
