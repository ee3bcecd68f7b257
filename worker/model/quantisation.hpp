// What a config.json says about quantised weights. Internal to the loader.
#pragma once

#include "common/base/result.hpp"
#include "worker/model/config_json.hpp"

namespace penstock::worker {

/// Whether matrices are FP8 (e4m3) in a form that the loader reads. Error: another quantisation, by name.
Result<bool> has_fp8_weights(const config_json::Config& config);

}  // namespace penstock::worker
