// Requests that wait for a worker. Bounded a priority class; between tenants deficit round robin over *uncached*
// tokens, between classes strict order with a guaranteed share for the lower ones. Pure; one owner; time is passed in.
//
// Use: push; whenever a worker may have room: while (auto head = front()) { choose a worker; placed? pop(head) : break;
// } expire() and refuse() tell who waited too long. Ids are the caller's (never 0, unique among those waiting).
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/base/error.hpp"
#include "common/base/result.hpp"
#include "common/time/clock.hpp"

namespace penstock::router {

enum class PriorityClass : std::uint8_t { high, normal, bulk };
inline constexpr std::size_t priority_classes = 3;
/// Positive is high, zero is normal, negative is bulk.
PriorityClass priority_class(std::int32_t priority);

struct QueueSettings {
  std::uint32_t requests_max = 1024;      // a class
  std::uint64_t bytes_max = 64ull << 20;  // a class
  Duration wait_max = std::chrono::seconds(30);
  std::uint32_t quantum_tokens = 4096;  // credit that a tenant gets in a round
  std::uint32_t lower_share = 8;        // of so many turns one goes to the next lower class that waits
};

/// Why a request is not taken; `error.code` is resource_exhausted (429), unavailable or, after a wait,
/// deadline_exceeded (503).
struct Refused {
  Error error;
  Duration retry_after{};
};

struct Waiting {
  std::uint64_t id = 0;
  std::string tenant;
  PriorityClass priority = PriorityClass::normal;
  std::uint64_t uncached_tokens = 0;  // what it will cost a worker; at least 1 is charged
  std::uint64_t bytes = 0;            // held in memory for it
  std::optional<TimePoint> deadline;  // of the request itself
};

class AdmissionQueue {
 public:
  explicit AdmissionQueue(QueueSettings settings = {});

  /// Refuses at once if the class is full or, by the measured rate of leaving, the wait would pass wait_max.
  std::optional<Refused> push(const Waiting& request, TimePoint now);
  /// Whose turn it is; the same until pop, remove or a push of a higher class.
  std::optional<std::uint64_t> front();
  /// `id` (the front) got a worker.
  void pop(std::uint64_t id, TimePoint now);
  /// The client left; false if it does not wait here.
  bool remove(std::uint64_t id);
  /// Takes out those whose wait or deadline is over; answer them with `overdue()`.
  std::vector<std::uint64_t> expire(TimePoint now);
  Refused overdue() const;
  std::optional<TimePoint> next_expiry() const;

  std::size_t size() const { return by_id_.size(); }
  std::size_t size(PriorityClass priority) const;
  std::uint64_t bytes() const;
  std::uint64_t tokens() const;
  /// A guess of how long a request of that class would wait, from the rate of leaving; zero if nothing is known.
  Duration wait_expected(PriorityClass priority, TimePoint now) const;

 private:
  struct Item {
    Waiting request;
    TimePoint since;
    TimePoint until;
  };
  struct Tenant {
    std::deque<std::uint64_t> ids;
    std::uint64_t deficit = 0;
  };
  struct Class {
    std::unordered_map<std::string, Tenant> tenants;
    std::deque<std::string> ring;  // tenants with waiting requests, in turn
    std::uint64_t bytes = 0;
    std::uint64_t tokens = 0;
    std::size_t requests = 0;
    std::uint32_t passed_over = 0;  // turns that higher classes took while this one waited
  };
  std::optional<std::size_t> class_in_turn() const;
  std::uint64_t tenant_in_turn(Class& queue);
  void take_out(std::uint64_t id);
  double tokens_per_second(TimePoint now) const;

  QueueSettings settings_;
  std::array<Class, priority_classes> classes_;
  std::unordered_map<std::uint64_t, Item> by_id_;
  std::deque<std::pair<TimePoint, std::uint64_t>> left_;  // when and with how many tokens, the last 10 s
  std::uint64_t left_tokens_ = 0;
};

}  // namespace penstock::router
