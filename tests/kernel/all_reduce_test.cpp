// Sums over ranks: on as many GPUs as there are, several ranks to a GPU where there are fewer. Bits are those of a sum
// in float from rank 0 up, on every rank, at sizes that fill no block, over outputs that start as NaN, and thousands of
// times in graphs that all ranks replay on their own.
#include "kernels/cuda/all_reduce.hpp"

#include <thread>

#include "kernels/reference/reference.hpp"
#include "tests/kernel/support.hpp"

namespace penstock::kernels::cuda::test {
namespace {

using std::chrono::milliseconds;

/// Rank `rank` of a group, with a stream on its GPU.
class Ranks {
 public:
  explicit Ranks(std::uint32_t count, milliseconds deadline = milliseconds(5000)) {
    const std::uint32_t devices = std::max(1u, device_count());
    std::vector<int> of;
    for (std::uint32_t rank = 0; rank < count; ++rank) of.push_back(static_cast<int>(rank % devices));
    group_ = must(PeerGroup::make(of, deadline));
    for (std::uint32_t rank = 0; rank < count; ++rank) {
      select(rank);
      streams_.push_back(must(OwnedStream::make()));
    }
  }
  ~Ranks() { must(use_device(0)); }
  std::uint32_t count() const { return group_.ranks(); }
  /// Kernels that started early and wait could take the place of another rank's on a GPU that they share.
  Start start() const { return count() > device_count() ? Start::ordered : Start::overlapped; }
  const PeerRank& peers(std::uint32_t rank) const { return group_.rank(rank); }
  Stream select(std::uint32_t rank) const {
    must(use_device(group_.device(rank)));
    return rank < streams_.size() ? streams_[rank].get() : nullptr;
  }
  const PeerGroup& group() const { return group_; }
  void wait() const {
    for (std::uint32_t rank = 0; rank < count(); ++rank) {
      select(rank);
      must(streams_[rank].wait());
      must(group_.check(rank));
    }
  }

 private:
  PeerGroup group_;
  std::vector<OwnedStream> streams_;
};

struct Values {
  std::vector<Halves> x;  // of each rank
  Halves sum;             // in float from rank 0 up, then rounded
  std::vector<double> exact, magnitude;
};

Values random_shares(std::uint32_t ranks, std::size_t count, std::uint64_t seed) {
  Random random(seed);
  Values values;
  values.exact.assign(count, 0);
  values.magnitude.assign(count, 0);
  std::vector<float> sum(count, 0);
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    values.x.push_back(random_values(random, count, 2));
    for (std::size_t i = 0; i < count; ++i) {
      const double value = value_of(values.x.back()[i]);
      sum[i] = rank == 0 ? static_cast<float>(value) : sum[i] + static_cast<float>(value);
      values.exact[i] += value;
      values.magnitude[i] += std::abs(value);
    }
  }
  for (const float value : sum) values.sum.push_back(rounded(value));
  return values;
}

class AllReduceTest : public GpuTest {
 protected:
  void check(const Ranks& ranks, std::size_t count, const AllReduceConfig& config, Start start) {
    const std::string what = std::to_string(ranks.count()) + " ranks, " + std::to_string(count) + " values, kind " +
                             std::to_string(static_cast<int>(config.kind)) + ", " + std::to_string(config.threads);
    const Values values = random_shares(ranks.count(), count, count + ranks.count());
    std::vector<Guarded<Bf16>> x, y;
    for (std::uint32_t rank = 0; rank < ranks.count(); ++rank) {
      const Stream stream = ranks.select(rank);
      x.emplace_back(values.x[rank], stream);
      y.emplace_back(count, stream);
    }
    for (std::uint32_t rank = 0; rank < ranks.count(); ++rank) {
      const Stream stream = ranks.select(rank);
      must(all_reduce({ranks.peers(rank), x[rank].data(), y[rank].data(), count}, config, start, stream));
      must(all_reduce({ranks.peers(rank), x[rank].data(), x[rank].data(), count}, config, start, stream));
    }
    ranks.wait();
    std::vector<double> bounds;
    for (std::size_t i = 0; i < count; ++i) {
      bounds.push_back(1.01 * bf16_step * std::abs(values.exact[i]) + 1e-6 * values.magnitude[i]);
    }
    for (std::uint32_t rank = 0; rank < ranks.count(); ++rank) {
      ranks.select(rank);
      const Halves sums = y[rank].read(what);
      EXPECT_TRUE(sums == values.sum) << what << ": rank " << rank << " has other bits";
      EXPECT_TRUE(x[rank].read(what) == values.sum) << what << ": rank " << rank << " in place";
      expect_near(doubles(sums), values.exact, bounds, what);
    }
  }
};

constexpr AllReduceConfig one_shot{AllReduceKind::one_shot, 128}, two_shot{AllReduceKind::two_shot, 256};

TEST_F(AllReduceTest, EveryRankHasTheSameSumAtAllSizes) {
  for (const std::uint32_t count : {2u, 4u, 8u}) {
    const Ranks ranks(count);
    for (const std::size_t values : {1u, 7u, 8u, 9u, 63u, 1000u, 4096u, 4101u, 65536u, 65541u}) {
      for (const Start start : {Start::ordered, Start::overlapped}) {
        check(ranks, values, one_shot, start);
        check(ranks, values, {AllReduceKind::one_shot, 512}, start);
        check(ranks, values, two_shot, start);
      }
    }
  }
}

// One round has 2 Mi values; the last of several need not be full, and halves of the staging alternate within a kernel.
TEST_F(AllReduceTest, LargeOnesTakeSeveralRounds) {
  const Ranks ranks(2);
  constexpr std::size_t round = std::size_t{peer_round_pieces} * 8;
  for (const std::size_t values : {round, round + 1, 2 * round - 8, 3 * round + 12345, 7 * round}) {
    check(ranks, values, choose_all_reduce(2, values), Start::overlapped);
  }
  check(ranks, round / 2, one_shot, Start::overlapped);
}

TEST_F(AllReduceTest, NanIsKeptAndIsNoSignal) {
  const Ranks ranks(2);
  constexpr std::size_t count = 64;
  for (const AllReduceConfig& config : {one_shot, two_shot}) {
    std::vector<Guarded<Bf16>> x, y;
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      const Stream stream = ranks.select(rank);
      Halves values(count, rounded(1));
      for (std::size_t i = 0; i < count; ++i) {
        if (i % 3 == rank) values[i] = 0xffff;  // as empty staging looks
      }
      values[32] = values[33] = 0xffff;
      x.emplace_back(values, stream);
      y.emplace_back(count, stream);
    }
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      const Stream stream = ranks.select(rank);
      must(all_reduce({ranks.peers(rank), x[rank].data(), y[rank].data(), count}, config, Start::ordered, stream));
    }
    ranks.wait();
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      ranks.select(rank);
      const auto sums = doubles(y[rank].read());
      for (std::size_t i = 0; i < count; ++i) {
        EXPECT_EQ(std::isnan(sums[i]), i % 3 < 2 || i == 32 || i == 33) << i;
        if (!std::isnan(sums[i])) {
          EXPECT_EQ(sums[i], 2) << i;
        }
      }
    }
  }
}

class AllReduceNormTest : public AllReduceTest {
 protected:
  /// With the norm in the same kernel or behind it: the bits of all_reduce() and rms_norm().
  void check_norm(const Ranks& ranks, std::uint32_t tokens, std::uint32_t columns) {
    const std::string what =
        std::to_string(ranks.count()) + " ranks, " + std::to_string(tokens) + " x " + std::to_string(columns);
    const std::size_t count = std::size_t{tokens} * columns;
    const Values values = random_shares(ranks.count(), count, count);
    Random random(columns);
    const Halves residual = random_values(random, count, 3), weight = random_values(random, columns);
    std::vector<Guarded<Bf16>> x, y, on_residual, on_weight;
    for (std::uint32_t rank = 0; rank < ranks.count(); ++rank) {
      const Stream stream = ranks.select(rank);
      x.emplace_back(values.x[rank], stream);
      y.emplace_back(count, stream);
      on_residual.emplace_back(residual, stream);
      on_weight.emplace_back(weight, stream);
    }
    for (std::uint32_t rank = 0; rank < ranks.count(); ++rank) {
      const Stream stream = ranks.select(rank);
      const RmsNorm norm{
          on_residual[rank].data(), x[rank].data(), on_weight[rank].data(), y[rank].data(), tokens, columns, 1e-5f};
      must(all_reduce_norm({ranks.peers(rank), norm}, ranks.start(), stream));
    }
    ranks.wait();
    Halves sums = residual;
    std::vector<double> expected;
    for (std::size_t i = 0; i < count; ++i) sums[i] = rounded(value_of(residual[i]) + value_of(values.sum[i]));
    for (std::uint32_t t = 0; t < tokens; ++t) {
      const auto row =
          reference::rms_norm(doubles({sums.data() + std::size_t{t} * columns, columns}), doubles(weight), 1e-5f);
      expected.insert(expected.end(), row.begin(), row.end());
    }
    Halves first;
    for (std::uint32_t rank = 0; rank < ranks.count(); ++rank) {
      ranks.select(rank);
      EXPECT_TRUE(on_residual[rank].read(what) == sums) << what << ": residual of rank " << rank;
      const Halves normed = y[rank].read(what);
      if (rank == 0) first = normed;
      EXPECT_TRUE(normed == first) << what << ": rank " << rank << " has other bits";
      expect_close(doubles(normed), expected, 1.01 * bf16_step, 1e-30, what);
    }
    expect_separate_bits(ranks, values, residual, weight, first, what);
  }

  void expect_separate_bits(const Ranks& ranks, const Values& values, const Halves& residual, const Halves& weight,
                            const Halves& expected, const std::string& what) {
    const Stream stream = ranks.select(0);
    const Guarded<Bf16> x(values.sum, stream), on_residual(residual, stream), on_weight(weight, stream);
    const Guarded<Bf16> y(expected.size(), stream);
    const auto columns = static_cast<std::uint32_t>(weight.size());
    const auto tokens = static_cast<std::uint32_t>(expected.size() / columns);
    must(rms_norm({on_residual.data(), x.data(), on_weight.data(), y.data(), tokens, columns, 1e-5f}, Start::ordered,
                  stream));
    ranks.wait();
    EXPECT_TRUE(y.read(what) == expected) << what << ": a norm of its own has other bits";
  }
};

TEST_F(AllReduceNormTest, HasTheBitsOfBothKernels) {
  for (const std::uint32_t count : {2u, 4u}) {
    const Ranks ranks(count);
    for (const std::uint32_t columns : {8u, 264u, 2880u, 4096u, 8192u, 8200u, 32768u}) {
      for (const std::uint32_t tokens : {1u, 3u, 16u, 17u}) check_norm(ranks, tokens, columns);
    }
    check_norm(ranks, 300, 4096);
  }
}

/// Buffers of one rank whose values come back after every replay if each sum in between was right: what a pair of
/// operations adds, the next pair takes away. Small whole numbers, so nothing is rounded.
struct Circle {
  Guarded<Bf16> running, residual, plus, minus, weight, out;
};

class AllReduceGraphTest : public AllReduceTest {
 protected:
  static constexpr std::uint32_t tokens = 9, columns = 1032;
  static constexpr std::size_t count = std::size_t{tokens} * columns;

  static Halves whole_numbers(std::uint64_t seed, int sign) {
    Random random(seed);
    Halves values;
    for (std::size_t i = 0; i < count; ++i) {
      values.push_back(rounded(sign * (static_cast<double>(random.below(9)) - 4)));
    }
    return values;
  }
  static std::vector<Circle> circles(const Ranks& ranks) {
    std::vector<Circle> all;
    for (std::uint32_t rank = 0; rank < ranks.count(); ++rank) {
      const Stream stream = ranks.select(rank);
      all.push_back({{whole_numbers(100, 1), stream},
                     {whole_numbers(200, 1), stream},
                     {whole_numbers(rank, 1), stream},
                     {whole_numbers(rank, -1), stream},
                     {Halves(columns, rounded(1)), stream},
                     {count, stream}});
    }
    return all;
  }
  /// Rank `keeper` adds to its running values; the others give theirs and put the result away.
  static Result<void> queue(const Ranks& ranks, std::uint32_t rank, const Circle& circle, Stream stream) {
    for (std::uint32_t step = 0; step < 8; ++step) {
      const Bf16* const share = step % 2 == 0 ? circle.plus.data() : circle.minus.data();
      const RmsNorm norm{
          circle.residual.data(), share, circle.weight.data(), circle.out.data(), tokens, columns, 1e-5f};
      PENSTOCK_TRY_VOID(all_reduce_norm({ranks.peers(rank), norm}, Start::overlapped, stream));
      const bool keeps = rank == step / 2 % ranks.count();
      const std::size_t values = step / 2 % 2 == 0 ? count : count / 3 + 1;
      const AllReduce sum{ranks.peers(rank), keeps ? circle.running.data() : share,
                          keeps ? circle.running.data() : circle.out.data(), values};
      PENSTOCK_TRY_VOID(all_reduce(sum, step / 4 == 0 ? one_shot : two_shot, Start::overlapped, stream));
    }
    return {};
  }
  static void replay_all(const Ranks& ranks, const std::vector<Graph>& graphs, int times) {
    std::vector<std::thread> threads;
    for (std::uint32_t rank = 0; rank < ranks.count(); ++rank) {
      threads.emplace_back([&, rank] {
        const Stream stream = ranks.select(rank);
        for (int i = 0; i < times; ++i) must(graphs[rank].launch(stream));
      });
    }
    for (std::thread& thread : threads) thread.join();
    ranks.wait();
  }
};

TEST_F(AllReduceGraphTest, ThousandsOfReplaysLeaveWhatWasThere) {
  for (const std::uint32_t ranks_count : {2u, 4u}) {
    const Ranks ranks(ranks_count);
    const std::vector<Circle> all = circles(ranks);
    std::vector<Graph> graphs;
    for (std::uint32_t rank = 0; rank < ranks.count(); ++rank) {
      const Stream stream = ranks.select(rank);
      graphs.push_back(must(Graph::capture(stream, [&] { return queue(ranks, rank, all[rank], stream); })));
    }
    // Also an odd number of operations between replays: the halves of the staging change roles.
    for (const int times : {1, 1000, 2000}) {
      replay_all(ranks, graphs, times);
      check(ranks, 1000, one_shot, Start::overlapped);
      for (std::uint32_t rank = 0; rank < ranks.count(); ++rank) {
        ranks.select(rank);
        EXPECT_TRUE(all[rank].running.read() == whole_numbers(100, 1)) << "rank " << rank << " after " << times;
        EXPECT_TRUE(all[rank].residual.read() == whole_numbers(200, 1)) << "rank " << rank << " after " << times;
      }
    }
  }
}

TEST_F(AllReduceTest, AMissingRankEndsTheKernelAndTheGroup) {
  const Ranks ranks(2, milliseconds(100));
  const Stream stream = ranks.select(0);
  const Guarded<Bf16> x(Halves(4096, rounded(1)), stream), y(4096, stream);
  const AllReduce work{ranks.peers(0), x.data(), y.data(), 4096};
  for (int i = 0; i < 200; ++i) must(all_reduce(work, one_shot, Start::overlapped, stream));
  Stopwatch watch = must(Stopwatch::make());
  must(watch.start(stream));
  must(all_reduce(work, two_shot, Start::overlapped, stream));
  must(watch.stop(stream));
  EXPECT_LT(must(watch.seconds()), 0.05);  // those behind the first do not wait again
  const auto checked = ranks.group().check(0);
  ASSERT_FALSE(checked);
  EXPECT_EQ(checked.error().code, ErrorCode::deadline_exceeded);
  EXPECT_NE(checked.error().message.find("rank 1 did not come to round 0 of the collectives of rank 0 within 100 ms"),
            std::string::npos)
      << checked.error().message;
  must(ranks.group().check(1));
}

TEST(AllReduce, RefusesShapesByName) {
  AllReduce work;
  const auto refused = [](const Result<void>& result, const char* why) {
    ASSERT_FALSE(result);
    EXPECT_NE(result.error().message.find(why), std::string::npos) << result.error().message;
  };
  refused(all_reduce(work, one_shot, Start::ordered, nullptr), "all_reduce: peers");
  work.peers.ranks = 2;
  work.peers.rank = 2;
  refused(all_reduce(work, one_shot, Start::ordered, nullptr), "all_reduce: rank");
  work.peers.rank = 1;
  refused(all_reduce(work, {AllReduceKind::one_shot, 100}, Start::ordered, nullptr), "all_reduce: threads");
  work.values = 8;
  refused(all_reduce(work, one_shot, Start::ordered, nullptr), "all_reduce: x and y");
  Bf16 value = 0;
  work.x = work.y = &value;
  work.values = std::uint64_t{peer_round_pieces} * 4 + 1;
  refused(all_reduce(work, one_shot, Start::ordered, nullptr), "all_reduce: values");
  AllReduceNorm norm;
  norm.peers.ranks = 2;
  norm.norm.columns = 12;
  refused(all_reduce_norm(norm, Start::ordered, nullptr), "all_reduce_norm: columns");
  norm.norm = {&value, &value, &value, &value, 1, 8, 0};
  refused(all_reduce_norm(norm, Start::ordered, nullptr), "all_reduce_norm: x");
  const std::vector<int> three{0, 0, 0};
  const auto group = PeerGroup::make(three, milliseconds(1));
  ASSERT_FALSE(group);
  EXPECT_NE(group.error().message.find("a group of 3 GPUs"), std::string::npos);
}

}  // namespace
}  // namespace penstock::kernels::cuda::test
