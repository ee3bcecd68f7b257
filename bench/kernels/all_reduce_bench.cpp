// gpu_all_reduce_bench: sums over GPUs in graphs, a chain of equal operations on every GPU, replayed by a thread each.
// Times are of one operation in the chain, start included, on rank 0; the median of the replays.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <functional>
#include <thread>

#include "bench/kernels/bench_support.hpp"
#include "kernels/cuda/all_reduce.hpp"

namespace penstock::bench::gpu {
namespace {

namespace cuda = kernels::cuda;
using cuda::AllReduceConfig;
using cuda::AllReduceKind;
constexpr std::uint32_t replays = 15, hidden = 4096;
constexpr std::size_t bytes_max = std::size_t{64} << 20;

struct Rank {
  cuda::OwnedStream stream;
  DeviceBuffer x, y, residual, weight;
};

class Group {
 public:
  explicit Group(std::uint32_t count) {
    std::vector<int> devices;
    for (std::uint32_t i = 0; i < count; ++i) devices.push_back(static_cast<int>(i));
    peers_ = must(cuda::PeerGroup::make(devices, std::chrono::seconds(20)));
    Bench filler;
    for (std::uint32_t i = 0; i < count; ++i) {
      must(cuda::use_device(peers_.device(i)));
      Rank rank{must(cuda::OwnedStream::make()), must(DeviceBuffer::make(bytes_max)),
                must(DeviceBuffer::make(bytes_max)), must(DeviceBuffer::make(bytes_max)),
                must(DeviceBuffer::make(hidden * 2))};
      filler.stream = must(cuda::OwnedStream::make());
      for (DeviceBuffer* buffer : {&rank.x, &rank.y, &rank.residual, &rank.weight}) fill_ordinary(filler, *buffer);
      ranks_.push_back(std::move(rank));
    }
  }
  std::uint32_t count() const { return static_cast<std::uint32_t>(ranks_.size()); }
  const cuda::PeerRank& peers(std::uint32_t rank) const { return peers_.rank(rank); }
  Rank& rank(std::uint32_t index) { return ranks_[index]; }

  /// Microseconds of one of `launches` calls on every rank.
  double time(std::uint32_t launches, const std::function<Result<void>(std::uint32_t rank)>& launch) {
    std::vector<double> times;
    std::vector<std::thread> threads;
    for (std::uint32_t index = 0; index < count(); ++index) {
      threads.emplace_back([&, index] {
        must(cuda::use_device(peers_.device(index)));
        const Stream stream = ranks_[index].stream.get();
        const cuda::Graph graph = must(cuda::Graph::capture(stream, [&]() -> Result<void> {
          for (std::uint32_t i = 0; i < launches; ++i) PENSTOCK_TRY_VOID(launch(index));
          return {};
        }));
        cuda::Stopwatch watch = must(cuda::Stopwatch::make());
        for (std::uint32_t replay = 0; replay <= replays; ++replay) {
          must(launch(index));  // the ranks meet before the first event
          must(watch.start(stream));
          must(graph.launch(stream));
          must(watch.stop(stream));
          const double seconds = must(watch.seconds());
          if (index == 0 && replay > 0) times.push_back(seconds * 1e6 / launches);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (std::uint32_t index = 0; index < count(); ++index) must(peers_.check(index));
    std::nth_element(times.begin(), times.begin() + replays / 2, times.end());
    return times[replays / 2];
  }

 private:
  cuda::PeerGroup peers_;
  std::vector<Rank> ranks_;
};

void print(const char* kernel, std::size_t bytes, const std::string& variant, double microseconds) {
  std::printf("[\"%s\", %zu, \"%s\", %.2f]\n", kernel, bytes, variant.c_str(), microseconds);
  std::fflush(stdout);
}

void bench_plain(Group& group, std::size_t bytes, const AllReduceConfig& config, Start start) {
  const std::uint32_t launches = bytes > (4u << 20) ? 16 : 256;
  const double microseconds = group.time(launches, [&](std::uint32_t rank) {
    Rank& of = group.rank(rank);
    const cuda::AllReduce work{group.peers(rank), of.x.as<cuda::Bf16>(), of.y.as<cuda::Bf16>(), bytes / 2};
    return all_reduce(work, config, start, of.stream.get());
  });
  const std::string kind = config.kind == AllReduceKind::one_shot ? "one shot, " : "two shots, ";
  print("all_reduce", bytes, kind + std::to_string(config.threads) + (start == Start::ordered ? ", ordered" : ""),
        microseconds);
}

void bench_norm(Group& group, std::uint32_t tokens, Start start) {
  const auto norm_of = [&](Rank& of) {
    return cuda::RmsNorm{of.residual.as<cuda::Bf16>(),
                         of.x.as<cuda::Bf16>(),
                         of.weight.as<cuda::Bf16>(),
                         of.y.as<cuda::Bf16>(),
                         tokens,
                         hidden,
                         1e-5f};
  };
  const std::size_t bytes = std::size_t{tokens} * hidden * 2;
  const std::string suffix = start == Start::ordered ? ", ordered" : "";
  print("rms_norm+add", bytes, "alone" + suffix, group.time(256, [&](std::uint32_t rank) {
    Rank& of = group.rank(rank);
    return rms_norm(norm_of(of), start, of.stream.get());
  }));
  const bool fused = cuda::is_fused({group.peers(0), norm_of(group.rank(0))});
  print("rms_norm+add", bytes, (fused ? "fused with all_reduce" : "after all_reduce") + suffix,
        group.time(256, [&](std::uint32_t rank) {
          Rank& of = group.rank(rank);
          return all_reduce_norm({group.peers(rank), norm_of(of)}, start, of.stream.get());
        }));
}

int run(std::uint32_t ranks) {
  Group group(ranks);
  const cuda::DeviceInfo device = must(cuda::device_info());
  std::printf("%u x %s, driver %u\n", ranks, device.name.c_str(), device.driver);
  for (const Start start : {Start::overlapped, Start::ordered}) {
    for (const std::size_t kib : {2u, 8u, 32u, 64u, 128u, 256u, 512u, 1024u}) {
      for (const std::uint32_t threads : {64u, 128u, 256u, 512u}) {
        if (kib * 1024 / 16 * ranks <= cuda::peer_round_pieces) {
          bench_plain(group, kib * 1024, {AllReduceKind::one_shot, threads}, start);
        }
        if (kib >= 128) bench_plain(group, kib * 1024, {AllReduceKind::two_shot, threads}, start);
      }
    }
    for (const std::uint32_t tokens : {1u, 4u, 16u, 32u, 64u}) bench_norm(group, tokens, start);
  }
  for (const std::size_t mib : {2u, 4u, 16u, 64u}) {
    for (const std::uint32_t threads : {256u, 512u, 1024u}) {
      bench_plain(group, mib << 20, {AllReduceKind::two_shot, threads}, Start::overlapped);
    }
  }
  return 0;
}

}  // namespace
}  // namespace penstock::bench::gpu

int main(int argc, char** argv) {
  CLI::App app("Sums over the GPUs of this machine");
  std::uint32_t ranks = 2;
  app.add_option("--ranks", ranks, "GPUs: 2, 4 or 8.");
  CLI11_PARSE(app, argc, argv);
  try {
    return penstock::bench::gpu::run(ranks);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu_all_reduce_bench: %s\n", error.what());
    return 1;
  }
}
