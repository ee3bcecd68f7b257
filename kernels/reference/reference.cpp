#include "kernels/reference/reference.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace penstock::kernels::reference {

Vector matmul(const Vector& weights, const Vector& x, std::size_t rows, std::size_t columns, std::size_t m) {
  Vector y(m * rows);
  for (std::size_t t = 0; t < m; ++t) {
    for (std::size_t row = 0; row < rows; ++row) {
      double total = 0;
      for (std::size_t c = 0; c < columns; ++c) total += weights[row * columns + c] * x[t * columns + c];
      y[t * rows + row] = total;
    }
  }
  return y;
}

Vector rms_norm(const Vector& x, const Vector& weight, double epsilon) {
  double squares = 0;
  for (double value : x) squares += value * value;
  const double inverse = 1 / std::sqrt(squares / static_cast<double>(x.size()) + epsilon);
  Vector out(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) out[i] = x[i] * inverse * weight[i];
  return out;
}

double silu(double x) {
  return x / (1 + std::exp(-x));
}

double clamped_swiglu(double gate, double up) {
  const double g = std::min(gate, 7.0), u = std::clamp(up, -7.0, 7.0);
  return g / (1 + std::exp(-1.702 * g)) * (u + 1);
}

double e4m3(std::uint8_t code) {
  constexpr int bias = 7, mantissa_bits = 3;
  const int exponent = (code >> mantissa_bits) & 15, mantissa = code & 7;
  if (exponent == 15 && mantissa == 7) return std::nan("");
  const double magnitude = exponent == 0 ? std::ldexp(mantissa, 1 - bias - mantissa_bits)
                                         : std::ldexp(8 + mantissa, exponent - bias - mantissa_bits);
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

void rotate(double& first, double& second, double angle) {
  const double a = first * std::cos(angle) - second * std::sin(angle);
  second = first * std::sin(angle) + second * std::cos(angle);
  first = a;
}

Vector attention(const Vector& query, const Vector& keys, const Vector& values, std::size_t count, double scale,
                 std::optional<double> sink) {
  const std::size_t dim = query.size();
  Vector weight(count);
  for (std::size_t k = 0; k < count; ++k) {
    for (std::size_t d = 0; d < dim; ++d) weight[k] += scale * query[d] * keys[k * dim + d];
  }
  const double largest = *std::max_element(weight.begin(), weight.end());
  double total = 0;
  for (double& w : weight) total += w = std::exp(w - largest);
  if (sink) total += std::exp(*sink - largest);
  Vector out(dim);
  for (std::size_t k = 0; k < count; ++k) {
    for (std::size_t d = 0; d < dim; ++d) out[d] += weight[k] / total * values[k * dim + d];
  }
  return out;
}

}  // namespace penstock::kernels::reference
