#include "operator/app/figures.hpp"

#include <algorithm>
#include <utility>

#include "common/async/deadline.hpp"
#include "common/http/client.hpp"
#include "operator/core/names.hpp"
#include "operator/core/objects/common.hpp"
#include "operator/core/resolve.hpp"

namespace penstock::ctl {
namespace {

constexpr Duration page_timeout = std::chrono::seconds(3);
// What a group once did within the SLO is forgotten by and by: prompts change.
constexpr double rate_decay = 0.98;

bool scales_by_slo(const api::LLMService& service) {
  return std::any_of(service.spec.roles.begin(), service.spec.roles.end(),
                     [](const api::RoleSpec& role) { return role.scaling.mode == api::ScalingMode::slo; });
}

}  // namespace

boost::asio::awaitable<void> Figures::run() {
  for (;;) {
    co_await async::pause(interval);
    std::vector<kube::Key> keys;
    for (const auto* service : stores_.services.all()) {
      if (scales_by_slo(*service)) keys.push_back(service->meta.key());
    }
    std::erase_if(services_,
                  [&](const auto& one) { return std::find(keys.begin(), keys.end(), one.first) == keys.end(); });
    for (const auto& key : keys) co_await look_at(key);
    keys.clear();
    for (const auto* service : stores_.services.all()) {
      const auto& security = service->spec.security;
      if (security.tls_secret_ref || security.worker_tls_secret_ref) keys.push_back(service->meta.key());
    }
    std::erase_if(certificates_,
                  [&](const auto& one) { return std::find(keys.begin(), keys.end(), one.first) == keys.end(); });
    for (const auto& key : keys) co_await look_at_certificates(key);
  }
}

const ServiceFigures* Figures::of(const kube::Key& service) const {
  const auto found = services_.find(service);
  return found == services_.end() || !found->second.is_known ? nullptr : &found->second.figures;
}

std::optional<std::int64_t> Figures::certificate_end_s(const kube::Key& service) const {
  const auto found = certificates_.find(service);
  return found == certificates_.end() ? std::nullopt : std::optional(found->second);
}

boost::asio::awaitable<void> Figures::look_at_certificates(kube::Key key) {
  std::vector<std::string> routers;
  for (const Pod* pod : stores_.pods.with_label(label::service, label_value(key.name))) {
    const bool is_router = pod->meta.labels.get(label::role_type) == "router";
    if (is_router && pod->meta.namespace_ == key.namespace_ && !pod->ip.empty()) routers.push_back(pod->ip);
  }
  std::optional<std::int64_t> earliest;
  for (const auto& ip : routers) {
    MetricsReading reading;
    if (!co_await add_page_of(ip, "penstock_router_", reading)) continue;
    for (const char* name : {"penstock_router_tls_end_seconds", "penstock_router_worker_tls_end_seconds"}) {
      const auto found = reading.sums.find(name);
      if (found == reading.sums.end() || found->second <= 0) continue;
      const auto end = static_cast<std::int64_t>(found->second);
      earliest = std::min(earliest.value_or(end), end);
    }
  }
  if (!earliest) co_return;  // what was known stays
  const auto [at, fresh] = certificates_.try_emplace(key, *earliest);
  if (!fresh && at->second == *earliest) co_return;
  at->second = *earliest;
  if (on_certificate) on_certificate(key);
}

boost::asio::awaitable<bool> Figures::add_page_of(std::string ip, std::string prefix, MetricsReading& reading) {
  http::ClientOptions options;
  options.host = std::move(ip);
  options.port = admin_port;
  http::Client client(options);
  http::ClientRequest request("GET", "/metrics");
  auto answer = co_await client.request(std::move(request), page_timeout);
  if (!answer || answer->status != 200) co_return false;
  add_page(reading, answer->body, prefix);
  co_return true;
}

boost::asio::awaitable<void> Figures::look_at(kube::Key key) {
  MetricsReading reading;
  std::vector<std::string> routers;
  for (const Pod* pod : stores_.pods.with_label(label::service, label_value(key.name))) {
    const bool is_router = pod->meta.labels.get(label::role_type) == "router";
    if (is_router && pod->meta.namespace_ == key.namespace_ && pod->ready) routers.push_back(pod->ip);
  }
  for (const auto& ip : routers) {
    if (!co_await add_page_of(ip, "penstock_router_", reading)) co_return;  // half a sum would look like a restart
  }
  const TimePoint now = clock_.now();
  const api::LLMService* service = stores_.services.find(key);
  if (routers.empty() || service == nullptr) co_return;
  Memory& memory = services_[key];  // dropped by run() alone, which waits for this
  const MetricsReading before = std::exchange(memory.routers, reading);
  const double seconds = std::chrono::duration<double>(now - std::exchange(memory.at, now)).count();
  if (before.sums.empty() || seconds <= 0) co_return;

  const double quantile = service->spec.slo ? service->spec.slo->percentile / 100.0 : 0.95;
  const auto ttft = quantile_gained(before, reading, "penstock_router_time_to_first_token_seconds", quantile);
  const auto itl = quantile_gained(before, reading, "penstock_router_inter_token_latency_seconds", quantile);
  const auto prompt = gained(before, reading, "penstock_router_prompt_tokens_total");
  const auto cached = gained(before, reading, "penstock_router_cached_tokens_total");
  const auto output = gained(before, reading, "penstock_router_output_tokens_total");
  ServiceFigures next;
  const std::vector<api::RoleSpec> roles = service->spec.roles;
  const auto slo = service->spec.slo;
  for (const api::RoleSpec& role : roles) {
    if (role.type == api::RoleType::router) continue;
    const bool is_decode = role.type == api::RoleType::decode;
    const auto latency = is_decode ? itl : ttft;
    // Without a request in the window nothing is late.
    co_await look_at_role(key, role.name, latency.value_or(0) * 1000, next.loads[role.name]);
    const auto tokens = is_decode ? output : prompt;
    if (!tokens) continue;
    const double demand = std::max(0.0, *tokens - (is_decode ? 0 : cached.value_or(0))) / seconds;
    next.demand[role.name] = demand;
    const auto known = memory.figures.rate_at_slo.find(role.name);
    double rate = known == memory.figures.rate_at_slo.end() ? 0 : known->second * rate_decay;
    const double limit_ms = slo ? static_cast<double>((is_decode ? slo->itl_ms : slo->ttft_ms).value_or(0)) : 0;
    const std::size_t groups = next.loads[role.name].size();
    const bool is_within = limit_ms > 0 && latency && *latency * 1000 <= limit_ms;
    if (is_within && groups > 0) rate = std::max(rate, demand / static_cast<double>(groups));
    if (rate > 0) next.rate_at_slo[role.name] = rate;
  }
  memory.figures = std::move(next);
  memory.is_known = true;
}

boost::asio::awaitable<void> Figures::look_at_role(const kube::Key& service, const std::string& role, double latency_ms,
                                                   std::vector<GroupLoad>& loads) {
  std::vector<std::string> leaders;
  for (const Pod* pod : stores_.pods.with_label(label::service, label_value(service.name))) {
    const auto& labels = pod->meta.labels;
    const bool is_leader = labels.get(label::role) == role && labels.get(label::leader) == "true";
    if (is_leader && pod->meta.namespace_ == service.namespace_ && pod->ready) leaders.push_back(pod->ip);
  }
  for (const auto& ip : leaders) {
    MetricsReading reading;
    if (!co_await add_page_of(ip, "penstock_worker_", reading)) continue;
    const auto value = [&](std::string_view name) {
      const auto found = reading.sums.find(name);
      return found == reading.sums.end() ? 0 : found->second;
    };
    loads.push_back({latency_ms, value("penstock_worker_kv_usage_ratio"), value("penstock_worker_sequences_waiting")});
  }
}

}  // namespace penstock::ctl
