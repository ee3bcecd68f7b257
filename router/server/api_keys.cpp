#include "router/server/api_keys.hpp"

#include <algorithm>
#include <charconv>
#include <sstream>

#include "common/digest/digest.hpp"

namespace penstock::router {
namespace {

constexpr std::size_t key_bytes_max = 512;

bool is_hash(std::string_view text) {
  return text.size() == 64 &&
         std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

Result<void> read_option(std::string_view option, TenantLimits& limits) {
  const std::size_t equals = option.find('=');
  const std::string_view name = option.substr(0, equals);
  const std::string_view digits = equals == std::string_view::npos ? std::string_view() : option.substr(equals + 1);
  std::uint64_t number = 0;
  auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (digits.empty() || error != std::errc() || end != digits.data() + digits.size()) {
    return make_error(ErrorCode::invalid_argument, "'" + std::string(option) + "' is no name=number");
  }
  if (name == "requests-at-once") {
    limits.requests_at_once = static_cast<std::uint32_t>(std::min<std::uint64_t>(number, 1u << 30));
  } else if (name == "tokens-per-minute") {
    limits.tokens_per_minute = number;
  } else if (name == "requests-per-minute") {
    limits.requests_per_minute = number;
  } else {
    return make_error(ErrorCode::invalid_argument, "'" + std::string(name) + "' is no known limit");
  }
  return {};
}

}  // namespace

Result<ApiKeys> ApiKeys::parse(std::string_view text, const TenantLimits& defaults) {
  ApiKeys keys;
  std::istringstream lines{std::string(text)};
  std::string line;
  for (std::size_t number = 1; std::getline(lines, line); ++number) {
    const std::string where = "line " + std::to_string(number) + ": ";
    std::istringstream words(line.substr(0, line.find('#')));
    std::string hash, option;
    ApiKey key{{}, defaults};
    if (!(words >> hash)) continue;
    if (!is_hash(hash)) {
      return make_error(ErrorCode::invalid_argument, where + "must begin with 64 lower-case hex digits");
    }
    if (!(words >> key.tenant)) return make_error(ErrorCode::invalid_argument, where + "names no tenant");
    while (words >> option) {
      if (auto read = read_option(option, key.limits); !read) {
        return make_error(ErrorCode::invalid_argument, where + read.error().message);
      }
    }
    if (!keys.by_hash_.emplace(hash, std::move(key)).second) {
      return make_error(ErrorCode::invalid_argument, where + "repeats a key");
    }
  }
  if (keys.by_hash_.empty()) return make_error(ErrorCode::invalid_argument, "has no key");
  return keys;
}

const ApiKey* ApiKeys::find(const http::Headers& headers) const {
  constexpr std::string_view scheme = "Bearer ";
  std::optional<std::string_view> bearer, given;
  for (const auto& [name, value] : headers) {
    std::string_view key = value;
    if (http::equal_names(name, "authorization")) {
      if (bearer) return nullptr;
      bearer = key;
      if (!http::equal_names(key.substr(0, scheme.size()), scheme)) return nullptr;
      key.remove_prefix(scheme.size());
    } else if (!http::equal_names(name, "x-api-key")) {
      continue;
    }
    if (given && *given != key) return nullptr;
    given = key;
  }
  if (!given || given->empty() || given->size() > key_bytes_max) return nullptr;
  const auto found = by_hash_.find(digest::sha256_hex(*given));
  return found == by_hash_.end() ? nullptr : &found->second;
}

}  // namespace penstock::router
