// What every Collective must do, over ranks as threads, and what ends a group: a rank that stays away, ranks that call
// different operations, an outside failure.
#include "worker/comm/thread_group.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace penstock::worker {
namespace {

using Floats = std::vector<float>;
using Body = std::function<Result<void>(Collective&)>;

constexpr std::chrono::milliseconds long_deadline{20'000};

/// Runs the body once a rank, each on a thread of its own, and gives the outcomes in rank order.
std::vector<Result<void>> run_ranks(ThreadGroup& group, const Body& body) {
  std::vector<Result<void>> outcomes(group.ranks());
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < group.ranks(); ++rank) {
    threads.emplace_back([&, rank] { outcomes[rank] = body(group.rank(rank)); });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

void expect_all_succeed(ThreadGroup& group, const Body& body) {
  for (const auto& outcome : run_ranks(group, body)) EXPECT_TRUE(outcome) << outcome.error().message;
}

/// A value that differs by rank and place and does not sum exactly, so that another order of adding shows.
float value_of(std::uint32_t rank, std::size_t index) {
  return (rank % 2 == 0 ? 1e6f : -1e6f) + 0.1f * static_cast<float>(rank + 1) + static_cast<float>(index) / 3;
}

Floats values_of(std::uint32_t rank, std::size_t count) {
  Floats values;
  for (std::size_t i = 0; i < count; ++i) values.push_back(value_of(rank, i));
  return values;
}

/// Added from rank 0 up, the order that the interface promises.
Floats sums_of(std::uint32_t ranks, std::size_t count) {
  Floats sums = values_of(0, count);
  for (std::uint32_t rank = 1; rank < ranks; ++rank) {
    for (std::size_t i = 0; i < count; ++i) sums[i] += value_of(rank, i);
  }
  return sums;
}

class Conformance : public ::testing::TestWithParam<std::uint32_t> {
 protected:
  std::uint32_t ranks() const { return GetParam(); }
  ThreadGroup group_{GetParam(), long_deadline};
};

TEST_P(Conformance, EveryRankKnowsItsPlace) {
  for (std::uint32_t rank = 0; rank < ranks(); ++rank) {
    EXPECT_EQ(group_.rank(rank).rank(), rank);
    EXPECT_EQ(group_.rank(rank).ranks(), ranks());
  }
}

TEST_P(Conformance, AllReduceGivesEveryRankTheSumInRankOrder) {
  for (const std::size_t count : {0u, 1u, 7u, 1000u}) {
    std::vector<Floats> values(ranks());
    expect_all_succeed(group_, [&](Collective& comm) {
      Floats& mine = values[comm.rank()];
      mine = values_of(comm.rank(), count);
      return comm.all_reduce(mine);
    });
    for (const Floats& of_rank : values) EXPECT_EQ(of_rank, sums_of(ranks(), count)) << count;
  }
}

TEST_P(Conformance, AllGatherPutsTheRanksBehindEachOther) {
  std::vector<Floats> out(ranks(), Floats(ranks() * 5));
  expect_all_succeed(group_,
                     [&](Collective& comm) { return comm.all_gather(values_of(comm.rank(), 5), out[comm.rank()]); });
  Floats expected;
  for (std::uint32_t rank = 0; rank < ranks(); ++rank) {
    const Floats part = values_of(rank, 5);
    expected.insert(expected.end(), part.begin(), part.end());
  }
  for (const Floats& of_rank : out) EXPECT_EQ(of_rank, expected);
}

TEST_P(Conformance, ColumnsOfUnequalWidthComeSideBySide) {
  // Rank r gives r + 1 columns, from rows that are longer than that.
  constexpr std::size_t rows = 3, in_stride = 9;
  const std::size_t width = ranks() * (ranks() + 1) / 2, out_stride = width + 2;
  std::vector<Floats> out(ranks(), Floats(rows * out_stride, -1));
  expect_all_succeed(group_, [&](Collective& comm) {
    const std::uint32_t rank = comm.rank();
    const Floats in = values_of(rank, rows * in_stride);
    Collective::ColumnGather gather;
    gather.in = in.data();
    gather.in_stride = in_stride;
    gather.out = out[rank].data();
    gather.out_stride = out_stride;
    gather.rows = rows;
    gather.columns = rank + 1;
    gather.first_column = std::size_t{rank} * (rank + 1) / 2;
    return comm.all_gather_columns(gather);
  });
  for (const Floats& of_rank : out) {
    for (std::size_t row = 0; row < rows; ++row) {
      std::size_t column = 0;
      for (std::uint32_t from = 0; from < ranks(); ++from) {
        for (std::size_t i = 0; i <= from; ++i, ++column) {
          EXPECT_EQ(of_rank[row * out_stride + column], value_of(from, row * in_stride + i));
        }
      }
      for (; column < out_stride; ++column) EXPECT_EQ(of_rank[row * out_stride + column], -1) << "outside the columns";
    }
  }
}

TEST_P(Conformance, ReduceScatterGivesEachRankItsPartOfTheSum) {
  constexpr std::size_t part = 6;
  std::vector<Floats> out(ranks(), Floats(part));
  expect_all_succeed(group_, [&](Collective& comm) {
    return comm.reduce_scatter(values_of(comm.rank(), part * ranks()), out[comm.rank()]);
  });
  const Floats sums = sums_of(ranks(), part * ranks());
  for (std::uint32_t rank = 0; rank < ranks(); ++rank) {
    for (std::size_t i = 0; i < part; ++i) EXPECT_EQ(out[rank][i], sums[rank * part + i]);
  }
}

TEST_P(Conformance, BroadcastGivesEveryRankTheRootsValues) {
  for (std::uint32_t root = 0; root < ranks(); ++root) {
    std::vector<Floats> values(ranks());
    expect_all_succeed(group_, [&](Collective& comm) {
      values[comm.rank()] = values_of(comm.rank(), 4);
      return comm.broadcast(values[comm.rank()], root);
    });
    for (const Floats& of_rank : values) EXPECT_EQ(of_rank, values_of(root, 4));
  }
}

TEST_P(Conformance, OperationsFollowEachOtherWithoutMixing) {
  // Ranks rush ahead of each other; a buffer that is reused too early gives a wrong sum.
  std::vector<std::uint32_t> wrong(ranks());
  expect_all_succeed(group_, [&](Collective& comm) -> Result<void> {
    for (std::uint32_t round = 0; round < 300; ++round) {
      Floats values(8, static_cast<float>(round + comm.rank()));
      PENSTOCK_TRY_VOID(comm.all_reduce(values));
      const float expected = static_cast<float>(comm.ranks() * round + comm.ranks() * (comm.ranks() - 1) / 2);
      for (const float value : values) wrong[comm.rank()] += value != expected;
      if (round % 3 == 0) PENSTOCK_TRY_VOID(comm.barrier());
      Floats shared(2, static_cast<float>(comm.rank()));
      const std::uint32_t root = round % comm.ranks();
      PENSTOCK_TRY_VOID(comm.broadcast(shared, root));
      wrong[comm.rank()] += shared[1] != static_cast<float>(root);
    }
    return {};
  });
  for (const std::uint32_t count : wrong) EXPECT_EQ(count, 0u);
}

INSTANTIATE_TEST_SUITE_P(ThreadGroup, Conformance, ::testing::Values(1, 2, 3, 4, 8));

TEST(ThreadGroup, ARankThatStaysAwayIsNamedOnceTheDeadlinePasses) {
  ThreadGroup group(4, std::chrono::milliseconds(50));
  const auto outcomes = run_ranks(group, [](Collective& comm) -> Result<void> {
    if (comm.rank() == 2) return {};
    Floats values(3);
    return comm.all_reduce(values);
  });
  for (const std::uint32_t rank : {0u, 1u, 3u}) {
    ASSERT_FALSE(outcomes[rank]);
    EXPECT_EQ(outcomes[rank].error().code, ErrorCode::deadline_exceeded);
    EXPECT_EQ(outcomes[rank].error().message, "rank 2 did not come to all_reduce within 50 ms");
  }
}

TEST(ThreadGroup, AGroupStaysBrokenAfterAnError) {
  ThreadGroup group(2, std::chrono::milliseconds(20));
  ASSERT_FALSE(group.rank(0).barrier());
  // The late rank must not find a meeting that has been given up, nor wait for a deadline of its own.
  const auto late = group.rank(1).barrier();
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().message, "rank 1 did not come to barrier within 20 ms");
  for (const auto& outcome : run_ranks(group, [](Collective& comm) { return comm.barrier(); })) EXPECT_FALSE(outcome);
}

TEST(ThreadGroup, DifferentOperationsFailAllRanksAndAreNamed) {
  ThreadGroup group(2, long_deadline);
  const auto outcomes = run_ranks(group, [](Collective& comm) -> Result<void> {
    Floats values(2);
    if (comm.rank() == 0) return comm.all_reduce(values);
    return comm.broadcast(values, 0);
  });
  for (const auto& outcome : outcomes) {
    ASSERT_FALSE(outcome);
    EXPECT_EQ(outcome.error().code, ErrorCode::internal);
    EXPECT_NE(outcome.error().message.find("all_reduce"), std::string::npos) << outcome.error().message;
    EXPECT_NE(outcome.error().message.find("broadcast"), std::string::npos) << outcome.error().message;
  }
}

TEST(ThreadGroup, AFailureFromOutsideWakesRanksThatWait) {
  ThreadGroup group(3, long_deadline);
  std::vector<Result<void>> outcomes = run_ranks(group, [&](Collective& comm) -> Result<void> {
    if (comm.rank() == 1) {
      group.fail(make_error(ErrorCode::internal, "rank 1 ran out of memory"));
      group.fail(make_error(ErrorCode::internal, "a later failure"));
      return {};
    }
    return comm.barrier();
  });
  for (const std::uint32_t rank : {0u, 2u}) {
    ASSERT_FALSE(outcomes[rank]);
    EXPECT_EQ(outcomes[rank].error().message, "rank 1 ran out of memory");
  }
}

TEST(ThreadGroupDeathTest, UnequalCountsAreABrokenInvariant) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        ThreadGroup group(2, long_deadline);
        (void)run_ranks(group, [](Collective& comm) {
          Floats values(comm.rank() + 1);
          return comm.all_reduce(values);
        });
      },
      "all_reduce");
}

}  // namespace
}  // namespace penstock::worker
