// Who may call: keys known by their SHA-256 only. The file has one key a line:
//   <64 hex digits of SHA-256> <tenant> [requests-at-once=N] [tokens-per-minute=N] [requests-per-minute=N]
// Keys are 256 random bits, so a plain hash is enough, and a look-up by hash takes the same time for any wrong key.
// Immutable once parsed; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "common/base/result.hpp"
#include "common/http/message.hpp"
#include "router/core/admission/limits.hpp"

namespace penstock::router {

struct ApiKey {
  std::string tenant;
  TenantLimits limits;
};

class ApiKeys {
 public:
  /// Errors name the line. A file without a key is refused, so that an emptied file never opens the door.
  static Result<ApiKeys> parse(std::string_view text, const TenantLimits& defaults);

  /// The key of "Authorization: Bearer ..." or of "x-api-key: ...", if it is known. Two that differ are none, nor are
  /// two Authorization headers.
  const ApiKey* find(const http::Headers& headers) const;
  std::size_t size() const { return by_hash_.size(); }
  template <class Function>
  void for_each(Function function) const {
    for (const auto& [hash, key] : by_hash_) function(key);
  }

 private:
  std::unordered_map<std::string, ApiKey> by_hash_;
};

}  // namespace penstock::router
