// Products of a matrix with more tokens than skinny_gemm.hpp is for: y = x W^T by NVIDIA's cuBLASLt, which is loaded
// when it is first needed. An object has the algorithms that it has used; one thread at a time; queues work on the
// stream.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>

#include "common/base/result.hpp"
#include "kernels/cuda/device_buffer.hpp"
#include "kernels/cuda/quantise.hpp"
#include "kernels/cuda/skinny_gemm.hpp"
#include "kernels/cuda/stream.hpp"

namespace penstock::kernels::cuda {

/// How products of e4m3 are added up: in the matrix units all along, which keep fewer bits of small ones, or moved to
/// floats every 128 columns; blocks of scales always are.
enum class Fp8Sums : std::uint8_t { fast, exact };

struct GemmProduct {
  const Bf16* weights = nullptr;  // [rows][columns]
  const Bf16* x = nullptr;        // [tokens][columns], rows x_stride values apart
  void* y = nullptr;              // [tokens][rows], rows y_stride values apart, of type `output`
  std::uint32_t rows = 0;         // any
  std::uint32_t columns = 0;      // a multiple of 8
  std::uint32_t tokens = 0;       // any
  std::uint64_t x_stride = 0;     // a multiple of 8
  std::uint64_t y_stride = 0;
  OutputType output = OutputType::bf16;
  const Bf16* bias = nullptr;  // [rows], added; may be null; needs bf16 y, rows and y_stride that are multiples of 8
  const Bf16* residual = nullptr;  // [tokens][rows], rows y_stride apart, added before rounding; may be y; y is bf16
  // In place of `weights` and `x`, if there are values: with scales of rows and tokens, or blocks of both. Rows and
  // columns are multiples of 16; with blocks columns of 512 and tokens of 4; x_stride is not used. Bias and residual
  // may be added after rounding.
  Fp8Weights fp8_weights;
  Fp8Tokens fp8_x;
  Fp8Sums fp8_sums = Fp8Sums::fast;

  bool is_fp8() const { return fp8_weights.values != nullptr; }
};

/// Bytes that must move: weights, x, y, bias and residual once each.
std::uint64_t bytes_of(const GemmProduct& product);
double operations_of(const GemmProduct& product);

class Gemm {
 public:
  /// For the current device. Errors: unavailable without cuBLASLt 13, in one sentence; too little GPU memory for the
  /// 32 MiB in which partial sums meet.
  static Result<Gemm> make();
  Gemm();
  Gemm(Gemm&&) noexcept;
  Gemm& operator=(Gemm&&) noexcept;
  ~Gemm();

  /// Sums in float, rounded once. The library's first choice for a shape is asked for once and kept; the same shape on
  /// the same kind of device gives the same bits. Errors: invalid_argument for sizes, strides or alignment, by name.
  Result<void> run(const GemmProduct& product, Stream stream);
  /// Whether the library has a product of this kind, alignment and size; for those of e4m3. Errors: as run().
  Result<bool> offers(const GemmProduct& product);
  /// As run() with the library's choice number `choice`, 0 the first; for benchmarks. Error: there is no such choice.
  Result<void> run_choice(const GemmProduct& product, std::uint32_t choice, Stream stream);

  /// Shapes whose choices are kept; all are forgotten when there are `kept_max`.
  static constexpr std::size_t kept_max = 4096;
  static constexpr std::uint32_t choices_max = 8;

 private:
  struct Library;
  struct Plan;
  struct Key {
    std::array<std::uint64_t, 5> values;  // sizes, kinds, strides and alignments
    auto operator<=>(const Key&) const = default;
  };
  static Key key_of(const GemmProduct& product);
  Result<const Plan*> plan_of(const GemmProduct& product);

  std::shared_ptr<const Library> library_;
  void* handle_ = nullptr;
  DeviceBuffer workspace_;
  std::map<Key, std::unique_ptr<Plan>> plans_;
};

}  // namespace penstock::kernels::cuda
