#include "router/core/admission/queue.hpp"

#include <algorithm>

#include "common/base/check.hpp"

namespace penstock::router {

namespace {
constexpr Duration rate_window = std::chrono::seconds(10);
constexpr std::size_t rate_samples_min = 8;  // fewer say nothing about a rate
std::size_t at(PriorityClass priority) {
  return static_cast<std::size_t>(priority);
}
std::uint64_t charge(const Waiting& request) {
  return std::max<std::uint64_t>(request.uncached_tokens, 1);
}
}  // namespace

PriorityClass priority_class(std::int32_t priority) {
  if (priority > 0) return PriorityClass::high;
  return priority == 0 ? PriorityClass::normal : PriorityClass::bulk;
}

AdmissionQueue::AdmissionQueue(QueueSettings settings) : settings_(settings) {
  settings_.quantum_tokens = std::max(settings_.quantum_tokens, 1u);
  settings_.lower_share = std::max(settings_.lower_share, 2u);
}

std::optional<Refused> AdmissionQueue::push(const Waiting& request, TimePoint now) {
  PENSTOCK_CHECK(request.id != 0 && !by_id_.contains(request.id), "id", request.id);
  Class& queue = classes_[at(request.priority)];
  const Duration expected = wait_expected(request.priority, now);
  const bool is_full = queue.requests >= settings_.requests_max || queue.bytes + request.bytes > settings_.bytes_max;
  if (is_full || expected > settings_.wait_max) {
    const Duration hint = std::clamp<Duration>(expected, std::chrono::seconds(1), settings_.wait_max);
    return Refused{make_error(ErrorCode::unavailable, is_full ? "the queue is full" : "the queue is too long"), hint};
  }
  TimePoint until = now + settings_.wait_max;
  if (request.deadline) until = std::min(until, *request.deadline);
  by_id_.emplace(request.id, Item{request, now, until});
  Tenant& tenant = queue.tenants[request.tenant];
  if (tenant.ids.empty()) queue.ring.push_back(request.tenant);
  tenant.ids.push_back(request.id);
  ++queue.requests;
  queue.bytes += request.bytes;
  queue.tokens += charge(request);
  return std::nullopt;
}

/// Highest class first, but each class that waits gets one of `lower_share` turns.
std::optional<std::size_t> AdmissionQueue::class_in_turn() const {
  std::optional<std::size_t> chosen;
  for (std::size_t i = 0; i < priority_classes; ++i) {
    if (classes_[i].requests == 0) continue;
    if (!chosen || classes_[i].passed_over + 1 >= settings_.lower_share) chosen = i;
  }
  return chosen;
}

/// Deficit round robin: the first tenant in turn whose credit covers its oldest request. If nobody's does, all get as
/// many quanta at once as the nearest of them needs, instead of going round one by one.
std::uint64_t AdmissionQueue::tenant_in_turn(Class& queue) {
  const auto cost = [&](const Tenant& tenant) { return charge(by_id_.at(tenant.ids.front()).request); };
  std::uint64_t rounds_least = UINT64_MAX;
  for (const std::string& name : queue.ring) {
    const Tenant& tenant = queue.tenants.at(name);
    if (tenant.deficit >= cost(tenant)) return tenant.ids.front();
    const std::uint64_t missing = cost(tenant) - tenant.deficit;
    rounds_least = std::min(rounds_least, (missing + settings_.quantum_tokens - 1) / settings_.quantum_tokens);
  }
  std::uint64_t first = 0;
  for (const std::string& name : queue.ring) {
    Tenant& tenant = queue.tenants.at(name);
    tenant.deficit += rounds_least * settings_.quantum_tokens;
    if (first == 0 && tenant.deficit >= cost(tenant)) first = tenant.ids.front();
  }
  return first;
}

std::optional<std::uint64_t> AdmissionQueue::front() {
  const auto chosen = class_in_turn();
  if (!chosen) return std::nullopt;
  return tenant_in_turn(classes_[*chosen]);
}

void AdmissionQueue::pop(std::uint64_t id, TimePoint now) {
  auto item = by_id_.find(id);
  PENSTOCK_CHECK(item != by_id_.end(), "id", id);
  const std::uint64_t cost = charge(item->second.request);
  const std::size_t own = at(item->second.request.priority);
  Class& queue = classes_[own];
  Tenant& tenant = queue.tenants.at(item->second.request.tenant);
  tenant.deficit -= std::min(tenant.deficit, cost);
  // The tenant goes to the end of the ring once its credit does not cover its next request.
  const std::string name = item->second.request.tenant;
  take_out(id);
  auto still = queue.tenants.find(name);
  if (still != queue.tenants.end() && still->second.deficit < charge(by_id_.at(still->second.ids.front()).request)) {
    auto place = std::find(queue.ring.begin(), queue.ring.end(), name);
    std::rotate(place, place + 1, queue.ring.end());
  }
  queue.passed_over = 0;
  for (std::size_t i = own + 1; i < priority_classes; ++i) {
    classes_[i].passed_over = classes_[i].requests == 0 ? 0 : classes_[i].passed_over + 1;
  }
  left_.emplace_back(now, cost);
  left_tokens_ += cost;
  while (left_.front().first + rate_window < now || left_.size() > 65536) {
    left_tokens_ -= left_.front().second;
    left_.pop_front();
  }
}

void AdmissionQueue::take_out(std::uint64_t id) {
  auto item = by_id_.find(id);
  const Waiting& request = item->second.request;
  Class& queue = classes_[at(request.priority)];
  auto tenant = queue.tenants.find(request.tenant);
  auto& ids = tenant->second.ids;
  ids.erase(std::find(ids.begin(), ids.end(), id));
  if (ids.empty()) {  // an idle tenant saves no credit
    queue.ring.erase(std::find(queue.ring.begin(), queue.ring.end(), request.tenant));
    queue.tenants.erase(tenant);
  }
  --queue.requests;
  queue.bytes -= request.bytes;
  queue.tokens -= charge(request);
  by_id_.erase(item);
}

bool AdmissionQueue::remove(std::uint64_t id) {
  if (!by_id_.contains(id)) return false;
  take_out(id);
  return true;
}

std::vector<std::uint64_t> AdmissionQueue::expire(TimePoint now) {
  std::vector<std::uint64_t> over;
  for (const auto& [id, item] : by_id_) {
    if (item.until <= now) over.push_back(id);
  }
  std::sort(over.begin(), over.end());
  for (std::uint64_t id : over) take_out(id);
  return over;
}

Refused AdmissionQueue::overdue() const {
  return {make_error(ErrorCode::deadline_exceeded, "no worker became free in time"), std::chrono::seconds(5)};
}

std::optional<TimePoint> AdmissionQueue::next_expiry() const {
  std::optional<TimePoint> next;
  for (const auto& [id, item] : by_id_) next = next ? std::min(*next, item.until) : item.until;
  return next;
}

std::size_t AdmissionQueue::size(PriorityClass priority) const {
  return classes_[at(priority)].requests;
}

std::uint64_t AdmissionQueue::bytes() const {
  std::uint64_t sum = 0;
  for (const Class& queue : classes_) sum += queue.bytes;
  return sum;
}

std::uint64_t AdmissionQueue::tokens() const {
  std::uint64_t sum = 0;
  for (const Class& queue : classes_) sum += queue.tokens;
  return sum;
}

double AdmissionQueue::tokens_per_second(TimePoint now) const {
  if (left_.size() < rate_samples_min) return 0;
  const auto span = std::chrono::duration<double>(now - left_.front().first);
  return static_cast<double>(left_tokens_) / std::max(span.count(), 1.0);
}

Duration AdmissionQueue::wait_expected(PriorityClass priority, TimePoint now) const {
  const double rate = tokens_per_second(now);
  if (rate <= 0) return Duration::zero();
  std::uint64_t ahead = 0;
  for (std::size_t i = 0; i <= at(priority); ++i) ahead += classes_[i].tokens;
  const auto wait = std::chrono::duration<double>(std::min(static_cast<double>(ahead) / rate, 1e6));
  return std::chrono::duration_cast<Duration>(wait);
}

}  // namespace penstock::router
