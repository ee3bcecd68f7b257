// The weights of one model, packed for the CPU kernels, in as many shares as there are tensor-parallel ranks.
// Every matrix is cut by output rows, also attention output and FFN down: a rank gathers the whole input first, so no
// sum ever crosses ranks and the result has the same bits for any rank count. FP8 weights are kept as they are for an
// executor that asks for it, else packed as bf16. Immutable after loading; any thread.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "kernels/cpu/packed_matrix.hpp"
#include "worker/model/fp8_matrix.hpp"

namespace penstock::worker {

/// A matrix whose rows go to columns [first_column, ...) of the combined q, k, v result.
struct QkvPart {
  kernels::cpu::PackedMatrix matrix;
  std::size_t first_column = 0;
};

/// All matrices of a layer as the checkpoint has them, whole.
struct Fp8Layer {
  Fp8Matrix q, k, v;  // [heads * head_dim][hidden] and so on
  Fp8Matrix output, gate, up, down;
};

/// The FFN of one expert, as a dense layer's. On a GPU one below the other: [experts][2 * ffn][hidden] and
/// [experts][hidden][ffn].
struct ExpertWeights {
  kernels::cpu::PackedMatrix gate_up;  // [2 * ffn / ranks][hidden]
  kernels::cpu::PackedMatrix down;     // [hidden / ranks][ffn]
  std::vector<float> gate_up_bias;     // [2 * ffn / ranks] in the packed order of gate_up, or empty
  std::vector<float> down_bias;        // [hidden / ranks] or empty
};

struct LayerWeights {
  std::vector<float> attention_norm;    // [hidden]
  std::vector<QkvPart> qkv;             // one part if the formats agree, else one each
  std::vector<float> qkv_bias;          // [q, k, v rows of the rank] or empty
  std::vector<float> q_norm, k_norm;    // [head_dim] or empty
  std::vector<float> sinks;             // [heads / ranks] or empty
  kernels::cpu::PackedMatrix output;    // [hidden / ranks][heads * head_dim]
  std::vector<float> output_bias;       // [hidden / ranks] or empty
  std::vector<float> ffn_norm;          // [hidden]
  kernels::cpu::PackedMatrix gate_up;   // [2 * ffn / ranks][hidden], or empty if the two formats differ, then
  kernels::cpu::PackedMatrix gate, up;  // [ffn / ranks][hidden]
  kernels::cpu::PackedMatrix down;      // [hidden / ranks][ffn]
  kernels::cpu::PackedMatrix router;    // [experts][hidden], whole in every rank; empty in dense models
  std::vector<float> router_bias;       // [experts] or empty
  std::vector<ExpertWeights> experts;   // in place of gate_up and down in models with experts
  std::unique_ptr<Fp8Layer> fp8;        // in place of all these matrices where FP8 weights are kept
};

struct RankWeights {
  std::vector<LayerWeights> layers;
  kernels::cpu::PackedMatrix head;  // the rank's rows of the output matrix; empty: use the embedding (one rank, tied)
};

struct ModelWeights {
  kernels::cpu::PackedMatrix embedding;  // [vocabulary][hidden], whole, shared by all ranks
  std::vector<float> output_norm;        // [hidden]
  std::vector<RankWeights> ranks;
  std::size_t bytes = 0;  // of all packed matrices
};

}  // namespace penstock::worker
