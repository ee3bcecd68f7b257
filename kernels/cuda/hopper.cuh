// The matrix instruction of Hopper's warp groups (four warps, 64 rows) and what it needs: descriptors of operands in
// shared memory, fences, barriers in shared memory and copies of boxes of a tensor. Compiles for sm_90a only; callers
// see to that. Operands in shared memory are rows of 128 bytes whose 16-byte pieces are swizzled as the hardware does
// it for 128 bytes: eight rows are an atom of 1,024 bytes, and every operand starts at a multiple of that.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace penstock::kernels::cuda::device {

constexpr int group_threads = 128;  // of a warp group

__device__ inline std::uint32_t shared_address(const void* shared) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
}

/// An operand at `address`. With rows along the summed dimension `next_rows` is the distance of two groups of eight
/// rows, and `next_columns` is not used; across it, `next_rows` is the same and `next_columns` the distance of two
/// groups of 64 columns. Bytes.
__device__ inline std::uint64_t operand(std::uint32_t address, std::uint32_t next_rows, std::uint32_t next_columns) {
  constexpr std::uint64_t swizzle_128 = std::uint64_t{1} << 62;
  const auto piece = [](std::uint32_t bytes) { return static_cast<std::uint64_t>((bytes & 0x3ffffu) >> 4); };
  return piece(address) | piece(next_columns) << 16 | piece(next_rows) << 32 | swizzle_128;
}

/// Registers that products will read or add to are as written so far.
__device__ inline void begin_products() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
/// Ends a group of products, which then run on their own.
__device__ inline void commit_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// Waits until at most `pending` groups run.
template <int pending>
__device__ inline void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}
/// Keeps the compiler from using values before the wait above this.
template <int count>
__device__ inline void hold(float (&values)[count]) {
#pragma unroll
  for (int i = 0; i < count; ++i) asm volatile("" : "+f"(values[i])::"memory");
}
template <int count>
__device__ inline void hold(std::uint32_t (&values)[count]) {
#pragma unroll
  for (int i = 0; i < count; ++i) asm volatile("" : "+r"(values[i])::"memory");
}

#define PENSTOCK_EIGHT(d, i)                                                                            \
  "+f"(d[i]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3]), "+f"(d[(i) + 4]), "+f"(d[(i) + 5]), \
      "+f"(d[(i) + 6]), "+f"(d[(i) + 7])

// d[64][n] of a warp group, spread as multiply_add() has it: warp w has rows 16 w + lane / 4 and those 8 further, at
// columns 8 i + lane % 4 * 2 and the next, in d[4 i] to d[4 i + 3].
/// d = a b^T, or added to d: a[64][16] and b[128][16], both with rows along the summed dimension.
__device__ inline void multiply(float (&d)[64], std::uint64_t a, std::uint64_t b, bool adds) {
  asm volatile(
      "{\n.reg .pred adds;\nsetp.ne.b32 adds, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7,"
      " %8, %9, %10, %11, %12, %13, %14, %15,"
      " %16, %17, %18, %19, %20, %21, %22, %23,"
      " %24, %25, %26, %27, %28, %29, %30, %31,"
      " %32, %33, %34, %35, %36, %37, %38, %39,"
      " %40, %41, %42, %43, %44, %45, %46, %47,"
      " %48, %49, %50, %51, %52, %53, %54, %55,"
      " %56, %57, %58, %59, %60, %61, %62, %63"
      "}, %64, %65, adds, 1, 1, 0, 0;\n}"
      : PENSTOCK_EIGHT(d, 0), PENSTOCK_EIGHT(d, 8), PENSTOCK_EIGHT(d, 16), PENSTOCK_EIGHT(d, 24), PENSTOCK_EIGHT(d, 32),
        PENSTOCK_EIGHT(d, 40), PENSTOCK_EIGHT(d, 48), PENSTOCK_EIGHT(d, 56)
      : "l"(a), "l"(b), "r"(static_cast<int>(adds)));
}

/// d += a b: a[64][16] in registers, as multiply_add() has it, and b[16][128] with rows across the summed dimension.
__device__ inline void multiply_add(float (&d)[64], const std::uint32_t* a, std::uint64_t b) {
  asm volatile(
      "{\n.reg .pred adds;\nsetp.ne.b32 adds, %69, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7,"
      " %8, %9, %10, %11, %12, %13, %14, %15,"
      " %16, %17, %18, %19, %20, %21, %22, %23,"
      " %24, %25, %26, %27, %28, %29, %30, %31,"
      " %32, %33, %34, %35, %36, %37, %38, %39,"
      " %40, %41, %42, %43, %44, %45, %46, %47,"
      " %48, %49, %50, %51, %52, %53, %54, %55,"
      " %56, %57, %58, %59, %60, %61, %62, %63"
      "}, {%64, %65, %66, %67}, %68, adds, 1, 1, 1;\n}"
      : PENSTOCK_EIGHT(d, 0), PENSTOCK_EIGHT(d, 8), PENSTOCK_EIGHT(d, 16), PENSTOCK_EIGHT(d, 24), PENSTOCK_EIGHT(d, 32),
        PENSTOCK_EIGHT(d, 40), PENSTOCK_EIGHT(d, 48), PENSTOCK_EIGHT(d, 56)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(1));
}

/// d += a b: a[64][16] in registers, as multiply_add() has it, and b[16][64] with rows across the summed dimension.
__device__ inline void multiply_add(float (&d)[32], const std::uint32_t* a, std::uint64_t b) {
  asm volatile(
      "{\n.reg .pred adds;\nsetp.ne.b32 adds, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7,"
      " %8, %9, %10, %11, %12, %13, %14, %15,"
      " %16, %17, %18, %19, %20, %21, %22, %23,"
      " %24, %25, %26, %27, %28, %29, %30, %31"
      "}, {%32, %33, %34, %35}, %36, adds, 1, 1, 1;\n}"
      : PENSTOCK_EIGHT(d, 0), PENSTOCK_EIGHT(d, 8), PENSTOCK_EIGHT(d, 16), PENSTOCK_EIGHT(d, 24)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(1));
}
#undef PENSTOCK_EIGHT

/// A warp group's share of a block's registers: more for those that multiply, fewer for those that fetch.
template <int count>
__device__ inline void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(count));
}
template <int count>
__device__ inline void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(count));
}

/// A barrier in shared memory that alternates between phases 0 and 1; `phase` of a wait is the one to end.
struct SharedBarrier {
  std::uint64_t state;

  __device__ void init(int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(this)), "r"(arrivals) : "memory");
  }
  __device__ void arrive() {
    asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(shared_address(this)) : "memory");
  }
  /// Arrives; the phase also waits for so many bytes of copies.
  __device__ void arrive_expecting(int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(this)),
                 "r"(bytes)
                 : "memory");
  }
  __device__ void wait(std::uint32_t phase) {
    asm volatile(
        "{\n.reg .pred done;\nagain:\n"
        "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 done, [%0], %1;\n@!done bra again;\n}" ::"r"(
            shared_address(this)),
        "r"(phase)
        : "memory");
  }
};
__device__ inline void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
/// What this thread wrote to shared memory is seen by products and box copies.
__device__ inline void publish_to_products() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
/// Named barrier `id` (1 to 15) of `threads` threads; arrive() does not wait.
__device__ inline void named_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ inline void named_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/// Copies the box at these coordinates, the first one along rows; what is outside of the tensor becomes zeros.
__device__ inline void copy_box(void* shared, const CUtensorMap& map, SharedBarrier& done, int column, int row) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::
          "r"(shared_address(shared)),
      "l"(&map), "r"(shared_address(&done)), "r"(column), "r"(row)
      : "memory");
}
__device__ inline void copy_box(void* shared, const CUtensorMap& map, SharedBarrier& done, int column, int row,
                                int plane) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], "
      "[%2];" ::"r"(shared_address(shared)),
      "l"(&map), "r"(shared_address(&done)), "r"(column), "r"(row), "r"(plane)
      : "memory");
}

}  // namespace penstock::kernels::cuda::device
