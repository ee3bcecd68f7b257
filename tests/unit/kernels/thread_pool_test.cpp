#include "kernels/cpu/thread_pool.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "kernels/cpu/cpu_share.hpp"

namespace penstock::kernels::cpu {
namespace {

TEST(ThreadPool, BarriersOrderWhatMembersWrite) {
  for (const std::uint32_t threads : {1u, 2u, 3u}) {
    for (const std::uint32_t spin : {0u, 1000u}) {
      ThreadPool pool({.threads = threads, .spin_rounds = spin});
      std::vector<std::uint64_t> cells(threads, 1);
      for (int run = 0; run < 20; ++run) {
        pool.run([&](ThreadPool::Member& member) {
          for (int step = 0; step < 10; ++step) {
            std::uint64_t total = 0;
            for (std::uint64_t cell : cells) total += cell;
            member.barrier();
            cells[member.index()] = total % 1000003;
            member.barrier();
          }
        });
      }
      for (std::uint64_t cell : cells) EXPECT_EQ(cell, cells[0]);
    }
  }
}

TEST(ThreadPool, EveryMemberRunsOnce) {
  ThreadPool pool({.threads = 4, .spin_rounds = 10});
  std::vector<int> calls(4, 0);
  for (int run = 1; run <= 50; ++run) {
    pool.run([&](ThreadPool::Member& member) {
      EXPECT_EQ(member.count(), 4u);
      ++calls[member.index()];
    });
    EXPECT_EQ(calls, std::vector<int>(4, run));
  }
}

// More threads than processors: nobody may depend on another running at the same time.
TEST(ThreadPool, ManyMoreThreadsThanProcessorsStillMeet) {
  ThreadPool pool({.threads = available_cpus() * 4 + 1});
  std::atomic<std::uint32_t> arrivals{0};
  pool.run([&](ThreadPool::Member& member) {
    for (std::uint32_t round = 1; round <= 20; ++round) {
      ++arrivals;
      member.barrier();
      EXPECT_EQ(arrivals, round * member.count());
      member.barrier();
    }
  });
}

TEST(CpuShare, QuotasCountWholeProcessors) {
  EXPECT_EQ(parse_cpu_max("max 100000\n"), std::nullopt);
  EXPECT_EQ(parse_cpu_max("100000 100000\n"), 1u);
  EXPECT_EQ(parse_cpu_max("150000 100000\n"), 2u);
  EXPECT_EQ(parse_cpu_max("1 100000\n"), 1u);
  for (const char* text : {"", "x", "100000", "100000 ", "100000 0", "-1 100000"}) {
    EXPECT_EQ(parse_cpu_max(text), std::nullopt) << text;
  }
  EXPECT_GE(available_cpus(), 1u);
}

TEST(ThreadPool, RefusesOptionsThatMakeNoSense) {
  EXPECT_THROW(ThreadPool({.threads = 0}), std::invalid_argument);
  EXPECT_THROW(ThreadPool({.threads = 2, .cpus = {0}}), std::invalid_argument);
  EXPECT_THROW(ThreadPool({.threads = 1, .cpus = {-1}}), std::invalid_argument);
}

TEST(Slice, CoversAllItemsOnce) {
  for (std::size_t items : {0u, 1u, 15u, 16u, 100u}) {
    for (std::uint32_t count : {1u, 2u, 3u, 7u}) {
      std::size_t next = 0;
      for (std::uint32_t i = 0; i < count; ++i) {
        const IndexRange range = split(items, {i, count}, 4);
        EXPECT_EQ(range.begin, next);
        next = range.end;
      }
      EXPECT_EQ(next, items);
    }
  }
}

}  // namespace
}  // namespace penstock::kernels::cpu
