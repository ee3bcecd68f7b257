// Typed reads of a Hugging Face config.json, for those who make something of it. Errors name the file and the key.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/result.hpp"
#include "common/json/json.hpp"

namespace penstock::worker::config_json {

inline Error refuse(const std::string& why) {
  return make_error(ErrorCode::unsupported, "config.json: " + why);
}

class Config {
 public:
  explicit Config(const json::Object& object) : object_(object) {}

  Result<std::uint32_t> required(std::string_view key) const {
    PENSTOCK_TRY(const std::optional<std::uint32_t> value, find(key));
    if (!value) return refuse(std::string(key) + " is missing");
    return *value;
  }
  Result<std::optional<std::uint32_t>> find(std::string_view key) const {
    PENSTOCK_TRY(const auto value,
                 json::optional<std::uint64_t>(object_, key, {}, {0, std::numeric_limits<std::uint32_t>::max()}));
    if (!value) return std::optional<std::uint32_t>();
    return std::optional<std::uint32_t>(static_cast<std::uint32_t>(*value));
  }
  Result<double> number(std::string_view key, double fallback) const {
    PENSTOCK_TRY(const auto value, json::optional<double>(object_, key, {}));
    return value.value_or(fallback);
  }
  Result<bool> flag(std::string_view key) const {
    PENSTOCK_TRY(const auto value, json::optional<bool>(object_, key, {}));
    return value.value_or(false);
  }
  Result<std::string> text(std::string_view key, std::string_view fallback) const {
    PENSTOCK_TRY(const auto value, json::optional<std::string_view>(object_, key, {}));
    return std::string(value.value_or(fallback));
  }
  bool is_set(std::string_view key) const {
    const json::Value* value = object_.if_contains(key);
    return value != nullptr && !value->is_null();
  }
  const json::Object& object() const { return object_; }

 private:
  const json::Object& object_;
};

}  // namespace penstock::worker::config_json
