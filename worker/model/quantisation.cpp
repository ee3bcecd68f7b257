#include "worker/model/quantisation.hpp"

#include <string>

namespace penstock::worker {

using config_json::Config;
using config_json::refuse;

namespace {

/// Scales for 128 x 128 weights, or for whole tensors where the file names no block.
Result<void> check_blocks(const Config& quantised) {
  if (!quantised.is_set("weight_block_size")) return {};
  PENSTOCK_TRY(const json::Array* size,
               json::required<const json::Array*>(quantised.object(), "weight_block_size", {}));
  const bool fits = size->size() == 2 && (*size)[0] == json::Value(128) && (*size)[1] == json::Value(128);
  return fits ? Result<void>()
              : refuse("quantization_config: weight_block_size other than [128, 128] is not supported");
}

}  // namespace

Result<bool> has_fp8_weights(const Config& config) {
  if (config.is_set("compression_config")) return refuse("compression_config is set; that is not supported");
  if (!config.is_set("quantization_config")) return false;
  PENSTOCK_TRY(const json::Object* object,
               json::required<const json::Object*>(config.object(), "quantization_config", {}));
  const Config quantised(*object);
  PENSTOCK_TRY(const std::string method, quantised.text("quant_method", ""));
  const auto unsupported = [&](const std::string& what) {
    return refuse("quantization_config: quant_method \"" + method + "\"" + what + " is not supported");
  };
  if (method == "fbgemm_fp8") return true;
  if (method == "fp8") {
    PENSTOCK_TRY(const std::string format, quantised.text("fmt", "e4m3"));
    if (format != "e4m3") return unsupported(" with fmt \"" + format + "\"");
    PENSTOCK_TRY_VOID(check_blocks(quantised));
    return true;
  }
  if (method == "compressed-tensors") {
    PENSTOCK_TRY(const std::string format, quantised.text("format", ""));
    return format == "float-quantized" ? Result<bool>(true) : unsupported(" with format \"" + format + "\"");
  }
  if (method == "modelopt") {
    PENSTOCK_TRY(const std::string algorithm, quantised.text("quant_algo", ""));
    return algorithm == "FP8" ? Result<bool>(true) : unsupported(" with quant_algo \"" + algorithm + "\"");
  }
  return unsupported("");
}

}  // namespace penstock::worker
