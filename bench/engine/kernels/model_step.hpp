// One step of a Llama-shaped model with random weights, as the CPU executor runs it: all operations, one pool run. It
// gives the speed of the kernels together (with barriers, norms, attention) without a model file.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cpu/kernels.hpp"
#include "kernels/cpu/thread_pool.hpp"

namespace penstock::bench {

struct ModelShape {
  std::uint32_t layers = 30;
  std::uint32_t hidden = 576;
  std::uint32_t heads = 9;
  std::uint32_t kv_heads = 3;
  std::uint32_t head_dim = 64;
  std::uint32_t ffn = 1536;
  std::uint32_t vocabulary = 49152;
  kernels::cpu::WeightFormat layer_format = kernels::cpu::WeightFormat::q4_1;
  kernels::cpu::WeightFormat head_format = kernels::cpu::WeightFormat::q8_0;
};

class ModelStep {
 public:
  ModelStep(const ModelShape& shape, std::uint32_t rows_max, std::uint32_t sequences, std::uint32_t context);

  std::size_t weight_bytes() const;
  /// Multiply-adds of the matrix products of one row, without the vocabulary.
  double layer_macs() const;

  /// `sequences` sequences of `rows` rows each, the first at `position`; logits for each sequence's last row.
  void run(const kernels::cpu::Kernels& kernels, kernels::cpu::ThreadPool& pool, std::uint32_t sequences,
           std::uint32_t rows, std::uint32_t position);

 private:
  struct Layer {
    kernels::cpu::PackedMatrix qkv, output, gate_up, down;
  };
  void run_member(const kernels::cpu::Kernels& kernels, kernels::cpu::ThreadPool::Member& member, std::uint32_t m);
  void run_layer(const kernels::cpu::Kernels& kernels, kernels::cpu::ThreadPool::Member& member, std::uint32_t layer,
                 std::uint32_t m);

  ModelShape shape_;
  std::uint32_t blocks_a_sequence_;
  std::vector<Layer> layers_;
  kernels::cpu::PackedMatrix head_;
  std::vector<float> norm_, hidden_, qkv_, logits_, last_, cos_, sin_, partials_;
  kernels::cpu::Activations normed_, attended_, inner_, final_;
  std::vector<std::byte> pool_memory_;
  std::vector<BlockIndex> tables_;
  std::vector<kernels::cpu::AttentionSequence> sequences_;
  kernels::cpu::KvLayout layout_;
};

}  // namespace penstock::bench
