// The memory file of a KV pool and its hand-over: who gets it, what is checked, and what the seals keep from happening.
#include "worker/transfer/ucx/pool_share.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "worker/memory/kv_pool.hpp"
#include "worker/transfer/ucx/stream_copy.hpp"

namespace penstock::worker::transfer::test {
namespace {

constexpr std::size_t pool_bytes = 3 * (2u << 20) + 12'345;

KvPool pool_of(std::size_t bytes) {
  auto pool = KvPool::allocate(bytes);
  EXPECT_TRUE(pool) << pool.error().message;
  return std::move(*pool);
}

TEST(KvPoolMemory, IsZeroedAndSealedAgainstOtherWritersAndCuts) {
  const KvPool pool = pool_of(pool_bytes);
  for (std::size_t i = 0; i < pool_bytes; i += 997) ASSERT_EQ(pool.data()[i], std::byte{});
  ASSERT_GE(pool.file(), 0);
  pool.data()[pool_bytes - 1] = std::byte{7};  // the owner still writes
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, pool.file(), 0), MAP_FAILED);
  EXPECT_EQ(::pwrite(pool.file(), "x", 1, 0), -1);
  EXPECT_EQ(::ftruncate(pool.file(), 4096), -1);
  EXPECT_EQ(::fallocate(pool.file(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), -1);
}

TEST(KvPoolMemory, ASizeThatTheSystemHasNotIsRefusedWithASentence) {
  const auto pool = KvPool::allocate(std::size_t{1} << 50);
  ASSERT_FALSE(pool);
  EXPECT_NE(pool.error().message.find("lower --kv-pool"), std::string::npos);
}

TEST(PoolShare, AReaderSeesTheOwnersBytesAlsoAfterTheOwnerEnded) {
  std::optional<KvPool> pool(pool_of(pool_bytes));
  auto share = PoolShare::start(pool->file());
  ASSERT_NE(share, nullptr);
  auto mapping = map_shared_pool(share->key(), pool_bytes);
  ASSERT_TRUE(mapping) << mapping.error().message;
  std::memset(pool->data() + 5000, 0x5A, 100'000);
  EXPECT_EQ(std::memcmp(mapping->data(), pool->data(), pool_bytes), 0);
  mapping->drop_pages();
  EXPECT_EQ(std::memcmp(mapping->data(), pool->data(), pool_bytes), 0);
  share.reset();
  pool.reset();
  EXPECT_EQ(mapping->data()[5000], std::byte{0x5A}) << "which is why only DONE_ACK makes KV valid";
}

TEST(PoolShare, AWrongTokenAnUnknownNameAndNoNameGetNothing) {
  const KvPool pool = pool_of(pool_bytes);
  const auto share = PoolShare::start(pool.file());
  ShareKey wrong = share->key();
  wrong.token_low ^= 1;
  EXPECT_FALSE(map_shared_pool(wrong, pool_bytes));
  wrong = share->key();
  wrong.name += "x";
  EXPECT_FALSE(map_shared_pool(wrong, pool_bytes));
  wrong.name.assign(5000, 'n');
  EXPECT_FALSE(map_shared_pool(wrong, pool_bytes));
  EXPECT_FALSE(map_shared_pool({}, pool_bytes));
  EXPECT_TRUE(map_shared_pool(share->key(), pool_bytes)) << "the others did no harm";
}

TEST(PoolShare, MoreThanTheFileHoldsIsRefused) {
  const KvPool pool = pool_of(pool_bytes);
  const auto share = PoolShare::start(pool.file());
  EXPECT_FALSE(map_shared_pool(share->key(), pool_bytes + 1));
  EXPECT_FALSE(map_shared_pool(share->key(), ~0ull));
  EXPECT_FALSE(map_shared_pool(share->key(), 0));
}

TEST(PoolShare, AFileThatCouldShrinkIsRefused) {
  const int file = ::memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(::ftruncate(file, 1 << 20), 0);
  {
    const auto share = PoolShare::start(file);
    const auto mapping = map_shared_pool(share->key(), 1 << 20);
    ASSERT_FALSE(mapping);
    EXPECT_NE(mapping.error().message.find("shrink"), std::string::npos);
  }
  ::close(file);
}

TEST(StreamCopy, CopiesExactlyItsRangeAtAnyAlignment) {
  std::vector<std::byte> source(200'000), target(200'200);
  for (std::size_t i = 0; i < source.size(); ++i) source[i] = static_cast<std::byte>(i * 31 + (i >> 8));
  for (std::size_t bytes : {0u, 1u, 63u, 1000u, 32'768u, 65'537u, 199'990u}) {
    for (std::size_t shift : {0u, 1u, 15u, 63u}) {
      std::fill(target.begin(), target.end(), std::byte{0xEE});
      stream_copy(target.data() + 64 + shift, source.data() + shift % 7, bytes);
      EXPECT_EQ(std::memcmp(target.data() + 64 + shift, source.data() + shift % 7, bytes), 0);
      EXPECT_EQ(target[63 + shift], std::byte{0xEE});
      EXPECT_EQ(target[64 + shift + bytes], std::byte{0xEE});
    }
  }
}

}  // namespace
}  // namespace penstock::worker::transfer::test
