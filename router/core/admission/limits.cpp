#include "router/core/admission/limits.hpp"

#include <algorithm>

#include "common/base/check.hpp"

namespace penstock::router {

namespace {
constexpr Duration retry_when_busy = std::chrono::seconds(1);
double seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}
}  // namespace

void TenantLimiter::Bucket::refill(double per_minute, TimePoint now) {
  if (at == TimePoint{})
    level = per_minute;  // a new tenant may burst one minute's worth
  else
    level = std::min(per_minute, level + seconds(now - at) * per_minute / 60);
  at = now;
}

Duration TenantLimiter::Bucket::until(double wanted, double per_minute) const {
  const double missing = std::max(0.0, wanted - level);
  const double wait = std::clamp(missing / per_minute * 60, 1.0, 3600.0);
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(wait));
}

TenantLimiter::TenantLimiter(TenantLimits defaults, std::size_t tenants_max)
    : defaults_(defaults), tenants_max_(std::max<std::size_t>(tenants_max, 1)) {}

void TenantLimiter::set(const std::string& name, const TenantLimits& limits) {
  Tenant& tenant = tenants_[name];
  tenant.limits = limits;
  tenant.configured = true;
}

TenantLimiter::Tenant& TenantLimiter::tenant(const std::string& name, TimePoint now) {
  auto found = tenants_.find(name);
  if (found == tenants_.end()) {
    if (tenants_.size() >= tenants_max_) forget_idle(now);
    found = tenants_.emplace(name, Tenant{}).first;
    found->second.limits = defaults_;
  }
  Tenant& tenant = found->second;
  tenant.tokens.refill(static_cast<double>(tenant.limits.tokens_per_minute), now);
  tenant.requests.refill(static_cast<double>(tenant.limits.requests_per_minute), now);
  return tenant;
}

/// Forgets tenants without requests whose buckets are full again: they are as good as new.
void TenantLimiter::forget_idle(TimePoint now) {
  for (auto at = tenants_.begin(); at != tenants_.end();) {
    Tenant& tenant = at->second;
    const auto tokens = static_cast<double>(tenant.limits.tokens_per_minute);
    const auto requests = static_cast<double>(tenant.limits.requests_per_minute);
    tenant.tokens.refill(tokens, now);
    tenant.requests.refill(requests, now);
    const bool is_full = tenant.tokens.level >= tokens && tenant.requests.level >= requests;
    const bool is_idle = !tenant.configured && tenant.at_once == 0 && is_full;
    at = is_idle ? tenants_.erase(at) : std::next(at);
  }
}

std::optional<Refused> TenantLimiter::enter(const std::string& name, std::uint64_t tokens, TimePoint now) {
  const auto refuse = [](const char* message, Duration retry_after) {
    return Refused{make_error(ErrorCode::resource_exhausted, message), retry_after};
  };
  Tenant& who = tenant(name, now);
  const TenantLimits& limits = who.limits;
  if (who.at_once >= limits.requests_at_once) return refuse("too many requests at once for this key", retry_when_busy);
  if (limits.requests_per_minute != 0 && who.requests.level < 1) {
    const Duration wait = who.requests.until(1, static_cast<double>(limits.requests_per_minute));
    return refuse("too many requests a minute for this key", wait);
  }
  // A request larger than a minute's worth may go once the bucket is full; the rest becomes debt.
  const auto per_minute = static_cast<double>(limits.tokens_per_minute);
  const double wanted = std::min(static_cast<double>(tokens), per_minute);
  if (limits.tokens_per_minute != 0 && who.tokens.level < wanted) {
    return refuse("too many tokens a minute for this key", who.tokens.until(wanted, per_minute));
  }
  ++who.at_once;
  if (limits.requests_per_minute != 0) who.requests.level -= 1;
  if (limits.tokens_per_minute != 0) who.tokens.level -= static_cast<double>(tokens);
  return std::nullopt;
}

void TenantLimiter::leave(const std::string& name, std::uint64_t output_tokens, TimePoint now) {
  Tenant& who = tenant(name, now);
  PENSTOCK_CHECK(who.at_once > 0, "tenant", name);
  --who.at_once;
  if (who.limits.tokens_per_minute != 0) who.tokens.level -= static_cast<double>(output_tokens);
}

std::uint32_t TenantLimiter::at_once(const std::string& name) const {
  auto found = tenants_.find(name);
  return found == tenants_.end() ? 0 : found->second.at_once;
}

RetryBudget::RetryBudget(RetrySettings settings) : settings_(settings), level_(settings.reserve) {}

void RetryBudget::on_request() {
  level_ = std::min<double>(level_ + settings_.share, std::max(settings_.reserve, 1u));
}

bool RetryBudget::try_retry(std::uint32_t retries) {
  if (retries >= settings_.each_max || level_ < 1) return false;
  level_ -= 1;
  return true;
}

}  // namespace penstock::router
