// What a config.json says about experts, for the spec and for the plan. Internal to the loader.
#pragma once

#include <optional>
#include <string_view>

#include "common/base/result.hpp"
#include "worker/model/config_json.hpp"
#include "worker/model/model_spec.hpp"

namespace penstock::worker {

/// The experts of a class of models that has them in every layer; none for other classes. Errors: a key that is missing
/// or that asks for what isn't here, by name: layers without experts, experts that every token passes.
Result<std::optional<ExpertSpec>> read_experts(const config_json::Config& config, std::string_view class_name);

}  // namespace penstock::worker
