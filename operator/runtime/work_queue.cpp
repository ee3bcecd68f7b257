#include "operator/runtime/work_queue.hpp"

#include <algorithm>

#include "common/base/check.hpp"

namespace penstock::ctl {
namespace {

constexpr std::uint64_t turns_for_the_last = 16;
constexpr std::uint32_t doublings_max = 30;

}  // namespace

void WorkQueue::enqueue(const kube::Key& key, Priority priority, TimePoint since) {
  auto [at, fresh] = waiting_.try_emplace(key, Waiting{priority, since, 0});
  if (!fresh && at->second.priority <= priority) return;
  at->second.priority = priority;
  at->second.ticket = next_ticket_++;
  lines_[static_cast<std::size_t>(priority)].push_back({key, at->second.ticket});
}

void WorkQueue::add(const kube::Key& key, Priority priority, TimePoint now) {
  if (auto running = running_.find(key); running != running_.end()) {
    running->second = std::min(running->second.value_or(priority), priority);
    return;
  }
  if (priority == Priority::pod && !waiting_.contains(key)) {
    forget_rested(now);
    if (const auto rests = rests_.find(key); rests != rests_.end()) return add_at(key, rests->second);
  }
  enqueue(key, priority, now);
}

void WorkQueue::forget_rested(TimePoint now) {
  while (!rests_in_order_.empty() && rests_in_order_.begin()->first <= now) {
    const auto at = rests_.find(rests_in_order_.begin()->second);
    if (at != rests_.end() && at->second <= now) rests_.erase(at);
    rests_in_order_.erase(rests_in_order_.begin());
  }
}

void WorkQueue::add_at(const kube::Key& key, TimePoint due) {
  auto [at, fresh] = due_.try_emplace(key, due);
  if (!fresh) {
    if (at->second <= due) return;
    delays_.erase({at->second, key});
    at->second = due;
  }
  delays_.emplace(due, key);
}

TimePoint WorkQueue::add_after_failure(const kube::Key& key, TimePoint now) {
  std::uint32_t& count = failures_[key];
  Duration delay = back_off_.first;
  for (std::uint32_t i = 0; i < count && delay < back_off_.last; ++i) delay *= 2;
  count = std::min(count + 1, doublings_max);
  delay = std::min(delay, back_off_.last);
  delay += Duration(static_cast<Duration::rep>(random_.uniform() * 0.25 * double(delay.count())));
  add_at(key, now + delay);
  return now + delay;
}

void WorkQueue::release_due(TimePoint now) {
  while (!delays_.empty() && delays_.begin()->first <= now) {
    const auto [due, key] = *delays_.begin();
    delays_.erase(delays_.begin());
    due_.erase(key);
    add(key, Priority::sync, due);
  }
}

std::optional<kube::Key> WorkQueue::pop(Line& line) {
  while (!line.empty()) {
    Entry entry = std::move(line.front());
    line.pop_front();
    auto at = waiting_.find(entry.key);
    if (at == waiting_.end() || at->second.ticket != entry.ticket) continue;  // moved to a better line
    waiting_.erase(at);
    running_.emplace(entry.key, std::nullopt);
    return std::move(entry.key);
  }
  return std::nullopt;
}

std::optional<kube::Key> WorkQueue::take(TimePoint now) {
  release_due(now);
  if (++turns_ % turns_for_the_last == 0) {
    for (auto line = lines_.rbegin(); line != lines_.rend(); ++line) {
      if (auto key = pop(*line)) return key;
    }
    return std::nullopt;
  }
  for (auto& line : lines_) {
    if (auto key = pop(line)) return key;
  }
  return std::nullopt;
}

void WorkQueue::done(const kube::Key& key, TimePoint now, std::optional<Duration> rest) {
  const auto running = running_.find(key);
  PENSTOCK_CHECK(running != running_.end(), kube::to_string(key));
  const auto again = running->second;
  running_.erase(running);
  forget_rested(now);
  if (const Duration length = rest.value_or(rest_); length > Duration{}) {
    rests_[key] = now + length;
    rests_in_order_.emplace(now + length, key);
  }
  if (again) add(key, *again, now);
}

std::optional<TimePoint> WorkQueue::next_due() const {
  if (delays_.empty()) return std::nullopt;
  return delays_.begin()->first;
}

std::uint32_t WorkQueue::failures(const kube::Key& key) const {
  const auto at = failures_.find(key);
  return at == failures_.end() ? 0 : at->second;
}

Duration WorkQueue::oldest(TimePoint now) const {
  Duration oldest{};
  for (const auto& [key, waiting] : waiting_) oldest = std::max(oldest, now - waiting.since);
  return oldest;
}

}  // namespace penstock::ctl
