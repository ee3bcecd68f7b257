// What one tenant (API key) may do at once and over time, and how often the router may retry. Pure; one owner; time is
// passed in. Bounds: tenants_max tenants are remembered, idle ones are forgotten first.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "common/time/clock.hpp"
#include "router/core/admission/queue.hpp"

namespace penstock::router {

struct TenantLimits {
  std::uint32_t requests_at_once = 64;
  std::uint64_t tokens_per_minute = 0;    // prompt and output, also what is cached; 0 is no limit
  std::uint64_t requests_per_minute = 0;  // 0 is no limit
};

/// Counts by paired enter and leave only; nothing resets the counters from outside.
class TenantLimiter {
 public:
  explicit TenantLimiter(TenantLimits defaults = {}, std::size_t tenants_max = 65536);

  /// Limits of one tenant, from its key file entry.
  void set(const std::string& tenant, const TenantLimits& limits);
  /// Refused with 429 and the time after which it can work; otherwise counted until leave().
  std::optional<Refused> enter(const std::string& tenant, std::uint64_t tokens, TimePoint now);
  /// `output_tokens` are charged after the fact and may put the tenant in debt.
  void leave(const std::string& tenant, std::uint64_t output_tokens, TimePoint now);
  std::uint32_t at_once(const std::string& tenant) const;

 private:
  struct Bucket {
    double level = 0;  // what may be spent; negative is debt
    TimePoint at{};
    void refill(double per_minute, TimePoint now);
    Duration until(double wanted, double per_minute) const;
  };
  struct Tenant {
    TenantLimits limits;
    std::uint32_t at_once = 0;
    bool configured = false;
    Bucket tokens, requests;
  };
  Tenant& tenant(const std::string& name, TimePoint now);
  void forget_idle(TimePoint now);

  TenantLimits defaults_;
  std::size_t tenants_max_;
  std::unordered_map<std::string, Tenant> tenants_;
};

struct RetrySettings {
  double share = 0.1;          // of requests
  std::uint32_t reserve = 10;  // retries that a quiet router may make at once
  std::uint32_t each_max = 1;  // of one request, before its first token
};

/// Keeps retries from multiplying an outage: each request earns a share of a retry, each retry spends one.
class RetryBudget {
 public:
  explicit RetryBudget(RetrySettings settings = {});
  void on_request();
  /// True, and spent, if a request that was retried `retries` times already may be retried once more.
  bool try_retry(std::uint32_t retries);
  double left() const { return level_; }

 private:
  RetrySettings settings_;
  double level_;
};

}  // namespace penstock::router
