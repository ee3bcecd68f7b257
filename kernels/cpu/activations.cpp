#include "kernels/cpu/activations.hpp"

namespace penstock::kernels::cpu {

Activations::Activations(std::size_t rows, std::size_t columns, ActivationForm form)
    : rows_(rows), columns_(columns), blocks_((columns + block - 1) / block), form_(form) {
  const std::size_t values = rows * blocks_ * block;
  if (has_f32()) f32_ = AlignedBuffer(values * sizeof(float));
  if (has_int16()) {
    int16_ = AlignedBuffer(values * sizeof(std::int16_t));
    meta_ = AlignedBuffer(3 * rows * blocks_ * sizeof(float));
  }
}

}  // namespace penstock::kernels::cpu
