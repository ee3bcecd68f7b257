// Sets of holders against std::set, with the codes that equal sets share.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <vector>

#include "common/time/random.hpp"
#include "router/core/index/worker_sets.hpp"

namespace penstock::router {
namespace {

using Model = std::set<Member>;

Model members_of(const WorkerSets& sets, WorkerSet set) {
  Model out;
  sets.for_each(set, [&](Member who) { out.insert(who); });
  return out;
}

/// Blocks that gain and lose holders, alone and as runs of a chain do.
class History {
 public:
  History(std::uint64_t seed, std::uint32_t slots) : random_(seed), slots_(slots) { sets_.reserve_slots(slots); }

  void step() {
    const std::uint64_t kind = random_.below(100);
    if (kind == 0 && slots_ < 700) sets_.reserve_slots(slots_ = slots_ * 2);
    const std::size_t first = random_.below(blocks), count = kind < 30 ? 1 : random_.below(blocks - first) + 1;
    const Member who = member(static_cast<std::uint32_t>(random_.below(slots_)), static_cast<Plane>(random_.below(3)));
    const bool adds = random_.below(100) < 55;
    for (std::size_t i = first; i < first + count; ++i) {
      if (kind >= 98) {
        sets_.release(codes_[i]);
        models_[i].clear();
      } else if (adds) {
        const std::size_t before = sets_.bytes(), promised = sets_.grows_by(codes_[i], who);
        ASSERT_EQ(sets_.add(codes_[i], who), models_[i].insert(who).second);
        ASSERT_EQ(sets_.bytes(), before + promised);
      } else {
        ASSERT_EQ(sets_.remove(codes_[i], who), models_[i].erase(who) == 1);
      }
    }
  }
  void compare() {
    std::map<Model, WorkerSet> code_of;
    std::set<WorkerSet> codes;
    std::size_t shared = 0;
    for (std::size_t i = 0; i < blocks; ++i) {
      ASSERT_EQ(members_of(sets_, codes_[i]), models_[i]);
      const auto [known, is_new] = code_of.emplace(models_[i], codes_[i]);
      ASSERT_EQ(known->second, codes_[i]) << "equal sets have equal codes";
      if (!is_new) continue;
      ASSERT_TRUE(codes.insert(codes_[i]).second) << "different sets have different codes";
      shared += models_[i].size() > 2 ? 1 : 0;
      compare_reading(codes_[i], models_[i]);
    }
    ASSERT_EQ(sets_.shared_sets(), shared) << "a set that nobody has is given back";
  }

 private:
  static constexpr std::size_t blocks = 60;

  void compare_reading(WorkerSet code, const Model& model) {
    std::vector<std::uint64_t> mask(std::size_t{sets_.words()} * planes), found(sets_.words()), expected(sets_.words());
    bool meets = false;
    for (int i = 0; i < 20; ++i) {
      const Member who =
          member(static_cast<std::uint32_t>(random_.below(slots_)), static_cast<Plane>(random_.below(3)));
      mask[sets_.word_of(who)] |= WorkerSets::bit_of(who);
      ASSERT_EQ(sets_.contains(code, who), model.contains(who));
    }
    for (const Member who : model) {
      if ((mask[sets_.word_of(who)] & WorkerSets::bit_of(who)) == 0) continue;
      meets = true;
      expected[who / planes / 64] |= WorkerSets::bit_of(who);
    }
    sets_.collect(code, mask.data(), found.data());
    ASSERT_EQ(found, expected);
    ASSERT_EQ(sets_.intersects(code, mask.data()), meets);
  }

  Random random_;
  std::uint32_t slots_;
  WorkerSets sets_;
  std::vector<WorkerSet> codes_ = std::vector<WorkerSet>(blocks);
  std::vector<Model> models_ = std::vector<Model>(blocks);
};

TEST(WorkerSets, RandomHistoriesEqualTheModelAndEqualSetsShareACode) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    History history(seed, seed % 2 == 0 ? 5 : 90);
    for (int i = 0; i < 400; ++i) {
      history.step();
      if (i % 10 == 0) history.compare();
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(WorkerSets, AChainOfManyHoldersTakesOneRowOfThePool) {
  WorkerSets sets;
  sets.reserve_slots(100);
  std::vector<WorkerSet> chain(5000);
  for (std::uint32_t slot = 0; slot < 100; ++slot) {
    for (WorkerSet& block : chain) sets.add(block, member(slot, Plane::a));
    ASSERT_LE(sets.shared_sets(), 1u);
  }
  EXPECT_LT(sets.bytes(), 100'000u);
  for (WorkerSet& block : chain) sets.release(block);
  EXPECT_EQ(sets.shared_sets(), 0u);
}

TEST(WorkerSets, ManySetsOutgrowTheFirstTable) {
  WorkerSets sets;
  sets.reserve_slots(200);
  std::vector<WorkerSet> codes;
  for (std::uint32_t a = 0; a < 100; ++a) {
    for (std::uint32_t b = a + 1; b < 100; ++b) {
      codes.push_back(0);
      for (const std::uint32_t slot : {a, b, 150u}) sets.add(codes.back(), member(slot, Plane::b));
    }
  }
  EXPECT_EQ(sets.shared_sets(), codes.size());
  WorkerSet again = 0;
  for (const std::uint32_t slot : {150u, 7u, 3u}) sets.add(again, member(slot, Plane::b));
  EXPECT_EQ(sets.shared_sets(), codes.size());
  for (WorkerSet& code : codes) sets.remove(code, member(150, Plane::b));
  EXPECT_EQ(sets.shared_sets(), 1u);
  EXPECT_EQ(members_of(sets, again).size(), 3u);
}

}  // namespace
}  // namespace penstock::router
