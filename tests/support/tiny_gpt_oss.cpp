#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "tests/support/tiny_model.hpp"

namespace penstock::test {
namespace {

constexpr float e2m1[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
constexpr std::uint64_t block = 32;

/// The four bits of a value that is e2m1 times 2^exponent.
unsigned code_of(float value, int exponent) {
  for (unsigned code = 0; code < 8; ++code) {
    if (std::ldexp(e2m1[code], exponent) == std::abs(value)) return code | (value < 0 ? 8u : 0u);
  }
  throw std::runtime_error("a value is not in MXFP4");
}

/// The least exponent with which 32 values fit.
int exponent_of(const float* values) {
  float largest = 0;
  for (std::uint64_t i = 0; i < block; ++i) largest = std::max(largest, std::abs(values[i]));
  int exponent = -20;
  while (std::ldexp(6.0f, exponent) < largest) ++exponent;
  return exponent;
}

std::string comma(std::initializer_list<std::uint64_t> dims) {
  std::string text;
  for (const std::uint64_t dim : dims) text += (text.empty() ? "" : ",") + std::to_string(dim);
  return text;
}

/// [rows][columns / 32][16] bytes and [rows][columns / 32] exponents.
void encode_mxfp4(const TinyTensor& tensor, std::string& blocks, std::string& scales) {
  for (std::size_t at = 0; at < tensor.values.size(); at += block) {
    const float* values = tensor.values.data() + at;
    const int exponent = exponent_of(values);
    scales += static_cast<char>(exponent + 127);
    for (std::uint64_t i = 0; i < block; i += 2) {
      blocks += static_cast<char>(code_of(values[i], exponent) | code_of(values[i + 1], exponent) << 4);
    }
  }
}

/// Row i of `a`, then row i of `b`.
TinyTensor alternate(const TinyTensor& a, const TinyTensor& b) {
  TinyTensor out{a.rows * 2, a.columns, {}};
  if (a.rows == 1) out = {1, a.columns * 2, {}};
  const std::uint64_t width = a.rows == 1 ? 1 : a.columns;
  for (std::size_t at = 0; at < a.values.size(); at += width) {
    for (const TinyTensor* from : {&a, &b}) {
      const auto begin = from->values.begin() + static_cast<std::ptrdiff_t>(at);
      out.values.insert(out.values.end(), begin, begin + static_cast<std::ptrdiff_t>(width));
    }
  }
  return out;
}

}  // namespace

void snap_to_mxfp4(TinyTensor& tensor) {
  for (std::size_t i = 0; i < tensor.values.size(); ++i) {
    float& value = tensor.values[i];
    const int exponent = -4 - static_cast<int>(i / block % 2);
    const float wanted = std::abs(value) * 16;
    const auto nearest =
        std::min_element(e2m1, e2m1 + 8, [&](float a, float b) { return std::abs(a - wanted) < std::abs(b - wanted); });
    value = std::copysign(std::ldexp(*nearest, exponent), value);
  }
}

void add_fused_experts(const TinyModel& model, const std::map<std::string, TinyTensor>& tensors, std::uint32_t layer,
                       const AddTensor& add) {
  const TinyExpertNames names = expert_names(model);
  const std::string prefix = "model.layers." + std::to_string(layer) + "." + names.each;
  std::string blocks[2], scales[2];
  TinyTensor biases[2];
  for (std::uint32_t e = 0; e < model.experts; ++e) {
    const auto tensor = [&](const std::string& name) { return tensors.at(prefix + std::to_string(e) + "." + name); };
    encode_mxfp4(alternate(tensor(names.gate + ".weight"), tensor(names.up + ".weight")), blocks[0], scales[0]);
    encode_mxfp4(tensor(names.down + ".weight"), blocks[1], scales[1]);
    const TinyTensor bias[2] = {alternate(tensor(names.gate + ".bias"), tensor(names.up + ".bias")),
                                tensor(names.down + ".bias")};
    for (int i = 0; i < 2; ++i) {
      biases[i].columns = bias[i].columns;
      biases[i].values.insert(biases[i].values.end(), bias[i].values.begin(), bias[i].values.end());
    }
  }
  const std::uint64_t rows[2] = {2 * model.ffn, model.hidden}, columns[2] = {model.hidden, model.ffn};
  for (int i = 0; i < 2; ++i) {
    const std::string name = prefix + (i == 0 ? "gate_up_proj" : "down_proj");
    add(name + "_blocks", "U8", comma({model.experts, rows[i], columns[i] / block, block / 2}), blocks[i]);
    add(name + "_scales", "U8", comma({model.experts, rows[i], columns[i] / block}), scales[i]);
    add(name + "_bias", dtype_of(model.format), comma({model.experts, rows[i]}),
        encode_tensor(biases[i], model.format));
  }
}

}  // namespace penstock::test
