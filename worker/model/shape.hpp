// The sizes of a model for a plan, from what a checkpoint says of itself; no weights are read. Wider than ModelSpec:
// models with experts and quantised checkpoints have a shape, whether or not an executor here runs them. Start-up only.
#pragma once

#include <filesystem>
#include <string_view>

#include "common/base/result.hpp"
#include "worker/core/plan/model_shape.hpp"

namespace penstock::worker {

/// `config_json` is a Hugging Face config.json. Errors name the key that is missing or not known.
Result<plan::ModelShape> shape_from_config(std::string_view config_json);

/// A folder with config.json, a config.json, or a .gguf file; the weights of a GGUF count as bf16.
Result<plan::ModelShape> read_model_shape(const std::filesystem::path& path);

}  // namespace penstock::worker
