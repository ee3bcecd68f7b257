// The placement decision: a pure function of workers, matches, request, time and random source. Allocates only the
// answer, and reads each worker's load once, however many duties it is looked at for. See docs of the terms at
// Candidate.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/base/result.hpp"
#include "common/time/random.hpp"
#include "router/core/membership/registry.hpp"
#include "router/core/policy/load_view.hpp"
#include "router/core/policy/placement.hpp"
#include "router/core/policy/settings.hpp"

namespace penstock::router {

class Policy {
 public:
  Policy(PolicySettings settings, std::uint32_t block_tokens) : settings_(settings), block_tokens_(block_tokens) {}

  /// All three spans are by slot. `matched_blocks` may be shorter than the others: the rest match nothing.
  Placement choose(const PlacementRequest& request, std::span<const WorkerEntry> workers,
                   std::span<const LoadView> loads, std::span<const std::uint32_t> matched_blocks, TimePoint now,
                   Random& random);

  std::uint64_t sequence_cap(const WorkerInfo& info) const;

 private:
  struct Scene;
  void look(const Scene& scene, const WorkerEntry& worker, Candidate& candidate) const;
  Ineligible eligibility(const Scene& scene, const WorkerEntry& worker, Duty duty) const;
  Duration age(const Scene& scene, TimePoint ready_since) const;
  void price(const Scene& scene, Candidate& candidate) const;
  Candidate* find_home(const Scene& scene, std::span<Candidate> group) const;
  void price_group(const Scene& scene, std::span<Candidate> group) const;
  const Candidate* pick(std::span<const Candidate> group, Random& random);
  struct Pair {
    const Candidate* prefill = nullptr;
    const Candidate* decode = nullptr;
    float surcharge = 0;  // for the way between them
    float cost() const { return prefill->cost + decode->cost + surcharge; }
  };
  Pair pick_pair(const Scene& scene, std::span<Candidate> prefill, std::span<Candidate> decode, Random& random);
  void pick_pair_at(const Scene& scene, Nearness nearness, std::span<Candidate> prefill, std::span<Candidate> decode,
                    Pair& best, Random& random);
  float transfer_surcharge(const Scene& scene, Nearness nearness) const;
  void decide(const Scene& scene, std::span<Candidate> whole, std::span<Candidate> prefill, std::span<Candidate> decode,
              Placement& out, Random& random);
  void answer_whole(const Scene& scene, const Candidate& chosen, std::string_view why, Placement& out) const;
  void answer_none(const Scene& scene, Placement& out) const;

  PolicySettings settings_;
  std::uint32_t block_tokens_;
  std::uint64_t turn_ = 0;                  // of round robin
  std::vector<LoadView::Figures> figures_;  // by slot, of the decision being made
};

}  // namespace penstock::router
