#include "kernels/cuda/gemm.hpp"

#include "kernels/cuda/cublaslt_api.hpp"
#include "kernels/reference/reference.hpp"
#include "tests/kernel/support.hpp"

#if __has_include(<cublasLt.h>)
#include <cublasLt.h>
#endif

namespace penstock::kernels::cuda::test {
namespace {

struct GemmCase {
  std::uint32_t rows, columns, tokens;
  bool with_bias = false, with_residual = false, in_place = false;
  OutputType output = OutputType::bf16;
  std::uint32_t gap = 5;  // between rows of y
};

std::string name_of(const GemmCase& c) {
  return std::to_string(c.tokens) + " x " + std::to_string(c.columns) + " x " + std::to_string(c.rows);
}

class GemmTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (!IsSkipped()) gemm_ = must(Gemm::make());
  }

  void check(const GemmCase& c) {
    Random random(c.rows * 31 + c.columns * 7 + c.tokens);
    const std::uint64_t x_stride = c.columns + 24, y_stride = c.rows + c.gap;
    const Halves weights = random_values(random, std::size_t{c.rows} * c.columns);
    const Halves x = random_values(random, c.tokens * x_stride), bias = random_values(random, c.rows, 5);
    const Halves residual = random_values(random, c.tokens * y_stride, 5);
    std::vector<double> dense_x;
    for (std::uint32_t t = 0; t < c.tokens; ++t) {
      for (std::uint32_t i = 0; i < c.columns; ++i) dense_x.push_back(value_of(x[t * x_stride + i]));
    }
    const auto exact = reference::matmul(doubles(weights), dense_x, c.rows, c.columns, c.tokens);
    const auto scale = reference::matmul(absolute(doubles(weights)), absolute(dense_x), c.rows, c.columns, c.tokens);
    const Guarded<Bf16> on_weights(weights, stream_.get()), on_x(x, stream_.get()), on_bias(bias, stream_.get());
    const Guarded<Bf16> on_residual(residual, stream_.get()), y(c.tokens * y_stride, stream_.get());
    const Guarded<float> y_float(c.tokens * y_stride, stream_.get());
    const bool is_float = c.output == OutputType::f32;
    GemmProduct p;
    p.weights = on_weights.data();
    p.x = on_x.data();
    p.y = is_float ? static_cast<void*>(y_float.data()) : (c.in_place ? on_residual.data() : y.data());
    p.output = c.output;
    p.rows = c.rows;
    p.columns = c.columns;
    p.tokens = c.tokens;
    p.x_stride = x_stride;
    p.y_stride = y_stride;
    p.bias = c.with_bias ? on_bias.data() : nullptr;
    p.residual = c.with_residual ? on_residual.data() : nullptr;
    must(gemm_.run(p, stream_.get()));
    wait();
    std::vector<double> all;
    if (is_float) {
      const auto values = y_float.read(name_of(c));
      all.assign(values.begin(), values.end());
    } else {
      all = doubles(c.in_place ? on_residual.read(name_of(c)) : y.read(name_of(c)));
    }
    std::vector<double> actual, expected, bounds;
    for (std::uint32_t t = 0; t < c.tokens; ++t) {
      for (std::uint32_t row = 0; row < y_stride; ++row) {
        const double given = all[t * y_stride + row], added = value_of(residual[t * y_stride + row]);
        if (row >= c.rows) {
          ASSERT_TRUE(c.in_place ? given == added : std::isnan(given)) << name_of(c) << ": written between rows";
          continue;
        }
        double value = exact[std::size_t{t} * c.rows + row];
        if (c.with_bias) value += value_of(bias[row]);
        if (c.with_residual) value += added;
        actual.push_back(given);
        expected.push_back(value);
        const double rounding = is_float ? 0 : bf16_step * std::abs(value);
        bounds.push_back(1.01 * rounding + 1e-5 * (scale[std::size_t{t} * c.rows + row] + std::abs(value)));
      }
    }
    expect_near(actual, expected, bounds, name_of(c));
  }

  Gemm gemm_;
};

TEST_F(GemmTest, MatchesTheReferenceForOddSizes) {
  for (const std::uint32_t tokens : {1u, 17u, 33u, 64u, 129u, 300u}) {
    check({1, 8, tokens});
    check({7, 56, tokens});
    check({100, 1000, tokens});
    check({257, 520, tokens});
  }
  check({512, 4096, 40});
  check({96, 14336, 65});
}

TEST_F(GemmTest, AddsBiasAndResidualAndGivesFloats) {
  for (const std::uint32_t tokens : {17u, 30u, 64u, 200u}) {
    check({104, 1000, tokens, true, false, false, OutputType::bf16, 8});
    check({512, 4096, tokens, true, false, false, OutputType::bf16, 0});
    check({104, 1000, tokens, true, true, false, OutputType::bf16, 8});
    check({104, 1000, tokens, false, true});
    check({104, 1000, tokens, false, true, true});
    check({100, 1000, tokens, false, false, false, OutputType::f32});
  }
}

// What one token holds never reaches another, and the same work gives the same bits.
TEST_F(GemmTest, TokensAreApartAndResultsRepeat) {
  constexpr std::uint32_t rows = 256, columns = 4096, tokens = 50;
  Random random(5);
  const Halves weights = random_values(random, std::size_t{rows} * columns);
  Halves x = random_values(random, std::size_t{tokens} * columns);
  const Guarded<Bf16> on_weights(weights, stream_.get());
  const auto run = [&](const Halves& input) {
    const Guarded<Bf16> on_x(input, stream_.get()), y(std::size_t{tokens} * rows, stream_.get());
    GemmProduct p;
    p.weights = on_weights.data();
    p.x = on_x.data();
    p.y = y.data();
    p.rows = rows;
    p.columns = columns;
    p.tokens = tokens;
    p.x_stride = columns;
    p.y_stride = rows;
    must(gemm_.run(p, stream_.get()));
    wait();
    return y.read();
  };
  const auto clean = run(x);
  EXPECT_EQ(run(x), clean);
  for (std::uint32_t i = 0; i < columns; ++i) x[std::size_t{4} * columns + i] = 0x7fc0;
  auto result = run(x);
  for (std::uint32_t i = 0; i < rows; ++i) {
    EXPECT_TRUE(std::isnan(value_of(result[std::size_t{4} * rows + i])));
    result[std::size_t{4} * rows + i] = clean[std::size_t{4} * rows + i];
  }
  EXPECT_EQ(result, clean);
}

// 150,000 rows of 16,384: the last row begins beyond 2^31 values.
TEST_F(GemmTest, ReadsBeyondTwoToTheThirtyOneValues) {
  constexpr std::uint32_t rows = 150'000, columns = 16'384, tokens = 17;
  Random random(9);
  const Halves row = random_values(random, columns), x = random_values(random, std::size_t{tokens} * columns);
  auto weights = must(DeviceBuffer::make(std::size_t{rows} * columns * 2));
  must(weights.fill(0, stream_.get()));
  must(weights.upload(row.data(), row.size() * 2, stream_.get(), (std::size_t{rows} - 1) * columns * 2));
  const Guarded<Bf16> on_x(x, stream_.get());
  const Guarded<float> y(std::size_t{tokens} * rows, stream_.get());
  GemmProduct p;
  p.weights = weights.as<Bf16>();
  p.x = on_x.data();
  p.y = y.data();
  p.output = OutputType::f32;
  p.rows = rows;
  p.columns = columns;
  p.tokens = tokens;
  p.x_stride = columns;
  p.y_stride = rows;
  must(gemm_.run(p, stream_.get()));
  wait();
  const auto values = y.read();
  const auto expected = reference::matmul(doubles(row), doubles(x), 1, columns, tokens);
  for (std::uint32_t t = 0; t < tokens; ++t) {
    EXPECT_NEAR(values[std::size_t{t} * rows + rows - 1], expected[t], 0.1);
    for (std::uint32_t i = 0; i + 1 < rows; ++i) ASSERT_EQ(values[std::size_t{t} * rows + i], 0) << i;
  }
}

TEST_F(GemmTest, RefusesShapesByName) {
  GemmProduct p;
  alignas(16) Bf16 value[8] = {};
  p.weights = p.x = value;
  p.y = value;
  p.rows = 1;
  p.x_stride = 8;
  p.y_stride = 1;
  const auto message = [&](std::uint32_t tokens, std::uint32_t columns) {
    p.tokens = tokens;
    p.columns = columns;
    const auto started = gemm_.run(p, nullptr);
    return started ? std::string() : started.error().message;
  };
  EXPECT_NE(message(0, 8).find("tokens"), std::string::npos);
  EXPECT_NE(message(1, 12).find("columns"), std::string::npos);
  EXPECT_NE(message(1, 16).find("x_stride"), std::string::npos);
  p.bias = value;
  EXPECT_NE(message(1, 8).find("bias"), std::string::npos);
}

// Where the toolkit is whole, what is declared by hand is what its header says.
#if __has_include(<cublasLt.h>)
namespace lt = cublaslt;
static_assert(lt::status_success == CUBLAS_STATUS_SUCCESS && lt::status_not_supported == CUBLAS_STATUS_NOT_SUPPORTED);
static_assert(lt::real_32f == CUDA_R_32F && lt::real_16bf == CUDA_R_16BF && lt::compute_32f == CUBLAS_COMPUTE_32F);
static_assert(lt::transposed == CUBLAS_OP_T && lt::desc_transa == CUBLASLT_MATMUL_DESC_TRANSA);
static_assert(lt::desc_epilogue == CUBLASLT_MATMUL_DESC_EPILOGUE);
static_assert(lt::desc_bias_pointer == CUBLASLT_MATMUL_DESC_BIAS_POINTER);
static_assert(lt::real_8f_e4m3 == CUDA_R_8F_E4M3 && lt::desc_fast_accumulation == CUBLASLT_MATMUL_DESC_FAST_ACCUM);
static_assert(lt::desc_a_scale_pointer == CUBLASLT_MATMUL_DESC_A_SCALE_POINTER);
static_assert(lt::desc_b_scale_pointer == CUBLASLT_MATMUL_DESC_B_SCALE_POINTER);
static_assert(lt::desc_a_scale_mode == CUBLASLT_MATMUL_DESC_A_SCALE_MODE);
static_assert(lt::desc_b_scale_mode == CUBLASLT_MATMUL_DESC_B_SCALE_MODE);
static_assert(lt::scale_of_row == CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F);
static_assert(lt::scale_of_128 == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F);
static_assert(lt::scale_of_128_by_128 == CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F);
static_assert(lt::desc_bias_data_type == CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE);
static_assert(lt::epilogue_default == CUBLASLT_EPILOGUE_DEFAULT && lt::epilogue_bias == CUBLASLT_EPILOGUE_BIAS);
static_assert(lt::preference_workspace_bytes == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
static_assert(lt::preference_reduction_schemes == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK);
static_assert(lt::preference_alignment_a == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
static_assert(lt::preference_alignment_b == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
static_assert(lt::preference_alignment_c == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
static_assert(lt::preference_alignment_d == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
static_assert(lt::reduction_in_compute_type == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
static_assert(sizeof(lt::HeuristicResult) == sizeof(cublasLtMatmulHeuristicResult_t));
static_assert(offsetof(lt::HeuristicResult, workspace_bytes) ==
              offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
static_assert(offsetof(lt::HeuristicResult, status) == offsetof(cublasLtMatmulHeuristicResult_t, state));
#endif

}  // namespace
}  // namespace penstock::kernels::cuda::test
