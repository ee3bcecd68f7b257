// Which prefill and which decode worker share a request.
#include <algorithm>

#include "router/core/policy/scene.hpp"

namespace penstock::router {

float Policy::transfer_surcharge(const Scene& scene, Nearness nearness) const {
  const auto tokens = static_cast<float>(scene.request.prompt_tokens);
  switch (nearness) {
    case Nearness::nvlink_domain:
      return 0;
    case Nearness::rack:
      return settings_.rack_transfer_weight * tokens;
    case Nearness::anywhere:
      return settings_.far_transfer_weight * tokens;
  }
  return 0;
}

/// The costs of a pair add up, and two things couple them: they must be able to exchange KV at all, and a transfer
/// costs more from far. So it is enough to look at the best of each side in every group of one nearness: a pair met in
/// a wider group than need be only looks dearer there than it does in the narrow one.
Policy::Pair Policy::pick_pair(const Scene& scene, std::span<Candidate> prefill, std::span<Candidate> decode,
                               Random& random) {
  price_group(scene, prefill);
  price_group(scene, decode);
  Pair best;
  const bool weighs_cost = settings_.kind == PolicyKind::kv_aware || settings_.kind == PolicyKind::least_load;
  for (const Nearness nearness : {Nearness::nvlink_domain, Nearness::rack, Nearness::anywhere}) {
    if (nearness != Nearness::anywhere && !weighs_cost) continue;
    pick_pair_at(scene, nearness, prefill, decode, best, random);
  }
  return best;
}

void Policy::pick_pair_at(const Scene& scene, Nearness nearness, std::span<Candidate> prefill,
                          std::span<Candidate> decode, Pair& best, Random& random) {
  const auto group_of = [&](const Candidate& candidate) -> const std::string& {
    return scene.workers[candidate.worker.slot].info.transfer_groups.at(nearness);
  };
  std::vector<std::string_view> groups;
  for (const Candidate& candidate : prefill) {
    const std::string& name = group_of(candidate);
    if (!name.empty() && std::find(groups.begin(), groups.end(), name) == groups.end()) groups.push_back(name);
  }
  std::vector<Candidate> left, right;
  for (std::string_view name : groups) {
    const auto select = [&](std::span<const Candidate> from, std::vector<Candidate>& to) {
      to.clear();
      std::copy_if(from.begin(), from.end(), std::back_inserter(to),
                   [&](const Candidate& candidate) { return group_of(candidate) == name; });
    };
    select(prefill, left);
    select(decode, right);
    const Candidate* p = pick(left, random);
    const Candidate* d = pick(right, random);
    if (d == nullptr && nearness == Nearness::anywhere) {
      for (Candidate& candidate : prefill) {
        const bool able = candidate.ineligible == Ineligible::no && group_of(candidate) == name;
        if (able) candidate.ineligible = Ineligible::unpaired;
      }
    }
    if (p == nullptr || d == nullptr) continue;
    const float surcharge = transfer_surcharge(scene, nearness);
    if (best.prefill != nullptr && best.cost() <= p->cost + d->cost + surcharge) continue;
    // Point into the answer's own candidates, which outlive these copies.
    const auto same = [](const Candidate* one) {
      return [one](const Candidate& other) { return other.worker == one->worker; };
    };
    best.prefill = &*std::find_if(prefill.begin(), prefill.end(), same(p));
    best.decode = &*std::find_if(decode.begin(), decode.end(), same(d));
    best.surcharge = surcharge;
  }
}

}  // namespace penstock::router
