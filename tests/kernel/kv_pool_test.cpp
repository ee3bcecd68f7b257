// KV in GPU memory as the transfer sees it: in the slab order that every executor has, and copied without loss.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/cuda/gather_copy.hpp"
#include "tests/kernel/model_world.hpp"
#include "worker/transfer/cuda/cuda_pool.hpp"

namespace penstock::worker {
namespace {

using kernels::cuda::test::must;
using transfer::DevicePool;
using transfer::HostRun;

float widen(const std::byte* at) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, at, sizeof bits);
  const std::uint32_t wide = std::uint32_t{bits} << 16;
  float value = 0;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

class KvPoolTest : public test::ModelWorld {};

/// Where a value of the processor's pool lies on the GPU, which keeps keys by halves.
std::uint64_t place_on_gpu(std::uint64_t value, const KvGeometry& here) {
  const std::uint64_t dim = value % here.head_dim, plane = value / here.head_dim / here.block_tokens;
  const bool is_key = plane % 2 == 0;
  if (!is_key || here.key_order == KeyOrder::halves) return value;
  return value - dim + dim / 2 + dim % 2 * (here.head_dim / 2);
}

// The same prompts in the same blocks: what lies where a head, layer, token and dimension should differs only by
// rounding. Whose keys are in another order says so.
TEST_F(KvPoolTest, LiesAsTheProcessorsKvDoes) {
  for (const std::string architecture : {"llama", "qwen3"}) {
    const auto tiny = test::tiny(architecture, 64);
    const auto model = load(tiny);
    CudaExecutorOptions options;
    options.kv_blocks = 200;
    const auto on_gpu = must(make_cuda_executor(model, options));
    const auto on_cpu = cpu(model, KvDtype::bf16);
    scores(*on_gpu, tiny.vocabulary, 64);
    scores(*on_cpu, tiny.vocabulary, 64);
    const KvPoolView there = on_gpu->kv_pool(), here = on_cpu->kv_pool();
    EXPECT_EQ(there.geometry.key_order, KeyOrder::halves);
    EXPECT_EQ(here.geometry.key_order, architecture == "llama" ? KeyOrder::pairs : KeyOrder::halves);
    const std::uint64_t bytes = there.blocks * there.geometry.block_bytes();
    ASSERT_EQ(bytes, here.blocks * here.geometry.block_bytes());
    const auto pool = must(transfer::make_cuda_pool(there.device, bytes));
    const auto copy = must(pool->host_memory(bytes));
    const HostRun all{copy.get(), 0, bytes};
    must(transfer::wait_for(*pool, pool->copy_out({&all, 1})));
    double difference = 0, size = 0;
    std::uint64_t written = 0;
    for (std::uint64_t value = 0; value < bytes / 2; ++value) {
      const float expected = widen(here.base + 2 * value);
      if (expected == 0) continue;  // a place that no token has
      difference += std::abs(expected - widen(copy.get() + 2 * place_on_gpu(value, here.geometry)));
      size += std::abs(expected);
      ++written;
    }
    EXPECT_GT(written, 20 * there.geometry.block_bytes() / 2);
    EXPECT_LT(difference, 0.05 * size) << architecture;
    std::printf("%s: KV of %lu values differs by %.2f %%\n", architecture.c_str(), static_cast<unsigned long>(written),
                100 * difference / size);
  }
}

TEST_F(KvPoolTest, CopiesPiecesInAndOut) {
  constexpr std::uint64_t bytes = 1 << 20;
  const auto pool = must(transfer::make_cuda_pool(bytes, 0));
  const auto from = must(pool->host_memory(bytes)), to = must(pool->host_memory(bytes));
  for (std::uint64_t i = 0; i < bytes; ++i) from.get()[i] = static_cast<std::byte>(i * 2654435761ull >> 11);
  std::vector<HostRun> in, out;
  for (std::uint64_t at = 0; at < bytes; at += 4096) in.push_back({from.get() + at, bytes - 4096 - at, 4096});
  for (std::uint64_t at = 0; at < bytes; at += 4096) out.push_back({to.get() + at, bytes - 4096 - at, 4096});
  must(transfer::wait_for(*pool, pool->copy_in(in)));
  must(transfer::wait_for(*pool, pool->copy_out(out)));
  EXPECT_EQ(std::memcmp(from.get(), to.get(), bytes), 0);
}

TEST_F(KvPoolTest, HandlesThatAreNotAPeersPoolAreRefused) {
  const auto pool = must(transfer::make_cuda_pool(1 << 20, 0));
  base::Bytes handle = pool->handle();
  EXPECT_LE(handle.size(), transfer::device_handle_bytes_max);
  EXPECT_FALSE(pool->open(handle, 1 << 20)) << "its own process's";
  EXPECT_FALSE(pool->open(base::BytesView(handle).first(handle.size() - 1), 1 << 20)) << "cut";
  for (std::byte& byte : handle) byte = std::byte{0x5a};
  EXPECT_FALSE(pool->open(handle, 1 << 20)) << "no handle";
  // The device still works.
  const auto host = must(pool->host_memory(16));
  const HostRun run{host.get(), 0, 16};
  must(transfer::wait_for(*pool, pool->copy_out({&run, 1})));
}

class GatherCopyTest : public kernels::cuda::test::GpuTest {};

// Pieces of many sizes to places in another order; what lies between them stays as it is.
TEST_F(GatherCopyTest, BringsEveryPieceToItsPlace) {
  namespace cuda = kernels::cuda;
  constexpr std::uint64_t bytes = 8 << 20;
  auto from = must(cuda::DeviceBuffer::make(bytes)), to = must(cuda::DeviceBuffer::make(bytes));
  const auto list = must(cuda::PinnedBuffer::make(64 * sizeof(cuda::GatherPiece)));
  std::vector<std::byte> source(bytes), expected(bytes, std::byte{0xee}), found(bytes);
  for (std::uint64_t i = 0; i < bytes; ++i) source[i] = static_cast<std::byte>(i * 2654435761ull >> 12);
  must(from.upload(source.data(), bytes, stream_.get()));
  must(to.fill(0xee, stream_.get()));
  cuda::GatherCopy work{from.data(), to.data(), list.as<cuda::GatherPiece>(), 64, 0};
  for (std::uint64_t i = 0; i < 64; ++i) {
    const cuda::GatherPiece piece{i * 131072, (63 - i) * 131072 + 16, 16 * (1 + i * i * 2)};
    list.as<cuda::GatherPiece>()[i] = piece;
    work.piece_bytes_max = std::max(work.piece_bytes_max, piece.bytes);
    std::memcpy(expected.data() + piece.to, source.data() + piece.from, piece.bytes);
  }
  must(cuda::gather_copy(work, cuda::Start::ordered, stream_.get()));
  must(to.download(found.data(), bytes, stream_.get()));
  EXPECT_EQ(std::memcmp(found.data(), expected.data(), bytes), 0);
  work.piece_bytes_max = 8;
  EXPECT_FALSE(cuda::gather_copy(work, cuda::Start::ordered, stream_.get()));
}

}  // namespace
}  // namespace penstock::worker
