// What each kernel computes, in double precision and the plainest loops. Tests compare the fast kernels with these;
// nothing at run time uses them. Matrices are row-major vectors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace penstock::kernels::reference {

using Vector = std::vector<double>;

/// y[m][rows] = x[m][columns] times weights[rows][columns] transposed.
Vector matmul(const Vector& weights, const Vector& x, std::size_t rows, std::size_t columns, std::size_t m);

Vector rms_norm(const Vector& x, const Vector& weight, double epsilon);

double silu(double x);

/// gpt-oss's: g / (1 + e^(-1.702 g)) * (u + 1), with g = min(gate, 7) and u = up within -7 and 7.
double clamped_swiglu(double gate, double up);

/// The value of an e4m3 code (4 bits of exponent, 3 of mantissa, no infinities); NaN for 0x7f and 0xff.
double e4m3(std::uint8_t code);

/// Rotates pairs (first[i], second[i]) by angle[i], in place.
void rotate(double& first, double& second, double angle);

/// One query row over `count` keys: softmax(scale * q . k) v, with keys and values [count][dim]. A sink is one more
/// score, without a value.
Vector attention(const Vector& query, const Vector& keys, const Vector& values, std::size_t count, double scale,
                 std::optional<double> sink = std::nullopt);

}  // namespace penstock::kernels::reference
