// The arithmetic of rank layouts over every product of up to 64 ranks.
#include "worker/core/parallel/rank_layout.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>

namespace penstock::worker {
namespace {

constexpr std::uint32_t ranks_tried = 64;

/// Every (tensor, context, data, pipeline) of up to 64 ranks with every expert size up to their product, made or not.
void for_each_sizes(const std::function<void(const AxisSizes&)>& visit) {
  AxisSizes s;
  for (s.tensor = 1; s.tensor <= ranks_tried; ++s.tensor) {
    for (s.context = 1; s.tensor * s.context <= ranks_tried; ++s.context) {
      for (s.data = 1; s.tensor * s.context * s.data <= ranks_tried; ++s.data) {
        for (s.pipeline = 1; s.tensor * s.context * s.data * s.pipeline <= ranks_tried; ++s.pipeline) {
          for (s.expert = 1; s.expert <= s.tensor * s.context * s.data; ++s.expert) visit(s);
        }
      }
    }
  }
}

void for_each_layout(const std::function<void(const RankLayout&)>& visit) {
  for_each_sizes([&](const AxisSizes& sizes) {
    if (const auto layout = RankLayout::make(sizes)) visit(*layout);
  });
}

TEST(RankLayout, CoordinatesAndRanksAreInverse) {
  std::size_t layouts = 0;
  for_each_layout([&](const RankLayout& layout) {
    ++layouts;
    for (std::uint32_t rank = 0; rank < layout.ranks(); ++rank) {
      const Coordinates at = layout.coordinates(rank);
      ASSERT_EQ(layout.rank_of(at), rank) << layout.to_string();
      for (const Axis axis : all_axes) ASSERT_LT(at.of(axis), layout.sizes().of(axis)) << layout.to_string();
    }
  });
  EXPECT_GT(layouts, 500u);
}

TEST(RankLayout, GroupsOfAnAxisPartitionTheRanks) {
  for_each_layout([](const RankLayout& layout) {
    for (const Axis axis : all_axes) {
      std::set<std::vector<std::uint32_t>> groups;
      for (std::uint32_t rank = 0; rank < layout.ranks(); ++rank) {
        const auto group = layout.group(axis, rank);
        ASSERT_EQ(group.size(), layout.sizes().of(axis)) << layout.to_string();
        ASSERT_EQ(group[layout.coordinates(rank).of(axis)], rank) << layout.to_string();
        groups.insert(group);
      }
      std::set<std::uint32_t> members;
      for (const auto& group : groups) members.insert(group.begin(), group.end());
      ASSERT_EQ(members.size(), layout.ranks()) << layout.to_string();
      ASSERT_EQ(groups.size() * layout.sizes().of(axis), layout.ranks()) << layout.to_string();
    }
  });
}

TEST(RankLayout, MembersOfAGroupDifferOnItsAxisOnly) {
  for_each_layout([](const RankLayout& layout) {
    for (const Axis axis : {Axis::tensor, Axis::context, Axis::data, Axis::pipeline}) {
      for (std::uint32_t rank = 0; rank < layout.ranks(); ++rank) {
        for (const std::uint32_t other : layout.group(axis, rank)) {
          for (const Axis each : {Axis::tensor, Axis::context, Axis::data, Axis::pipeline}) {
            if (each == axis) continue;
            ASSERT_EQ(layout.coordinates(other).of(each), layout.coordinates(rank).of(each)) << layout.to_string();
          }
        }
      }
    }
  });
}

TEST(RankLayout, ExactlyTheNamedProductsAreRefused) {
  for_each_sizes([](const AxisSizes& s) {
    const std::uint32_t replica = s.tensor * s.context;
    const bool expert_fits = s.expert == 1 || s.expert == replica || s.expert == replica * s.data;
    const bool crosses = s.expert > 1 && s.data > 1 && s.expert == replica * s.data;
    const bool supported =
        expert_fits && !(s.context > 1 && (s.data > 1 || s.pipeline > 1)) && !(crosses && s.pipeline > 1);
    const auto layout = RankLayout::make(s);
    ASSERT_EQ(layout.has_value(), supported) << s.tensor << s.context << s.data << s.pipeline << s.expert;
    if (!layout) {
      ASSERT_EQ(layout.error().code, ErrorCode::unsupported);
    }
  });
}

TEST(RankLayout, TensorNeighboursAreRankNeighbours) {
  const auto layout = *RankLayout::make({.tensor = 2, .context = 1, .data = 2, .pipeline = 2, .expert = 2});
  EXPECT_EQ(layout.ranks(), 8u);
  EXPECT_EQ(layout.group(Axis::tensor, 5), (std::vector<std::uint32_t>{4, 5}));
  EXPECT_EQ(layout.group(Axis::data, 5), (std::vector<std::uint32_t>{5, 7}));
  EXPECT_EQ(layout.group(Axis::pipeline, 5), (std::vector<std::uint32_t>{1, 5}));
  EXPECT_EQ(layout.group(Axis::expert, 5), (std::vector<std::uint32_t>{4, 5}));
  EXPECT_EQ(layout.to_string(), "tp=2 dp=2 pp=2 ep=2");
}

TEST(RankLayout, ExpertsAcrossReplicasCoverTheStage) {
  const auto layout = *RankLayout::make({.tensor = 2, .context = 1, .data = 4, .pipeline = 1, .expert = 8});
  EXPECT_EQ(layout.group(Axis::expert, 3), (std::vector<std::uint32_t>{0, 1, 2, 3, 4, 5, 6, 7}));
}

TEST(RankLayout, ErrorsNameWhatIsWrong) {
  const auto message = [](const AxisSizes& sizes) { return RankLayout::make(sizes).error().message; };
  EXPECT_NE(message({.tensor = 0}).find("tensor is 0"), std::string::npos);
  EXPECT_NE(message({.tensor = 1024, .data = 1024}).find("1048576 ranks"), std::string::npos);
  EXPECT_NE(message({.tensor = 1024, .context = 1024, .data = 1024, .pipeline = 1024}).find("ranks"),
            std::string::npos);
  EXPECT_NE(message({.tensor = 4, .expert = 2}).find("expert 2"), std::string::npos);
  EXPECT_NE(message({.context = 2, .data = 2}).find("context * data"), std::string::npos);
}

TEST(RankLayout, SharesCoverEverythingOnce) {
  for (std::uint32_t total = 0; total <= 100; ++total) {
    for (std::uint32_t parts = 1; parts <= 20; ++parts) {
      std::uint32_t next = 0;
      for (std::uint32_t index = 0; index < parts; ++index) {
        const Share share = share_of(total, parts, index);
        ASSERT_EQ(share.first, next);
        ASSERT_LE(share.count, (total + parts - 1) / parts);
        ASSERT_GE(share.count, total / parts);
        next += share.count;
      }
      ASSERT_EQ(next, total);
    }
  }
}

}  // namespace
}  // namespace penstock::worker
