#include "worker/model/weight_builder.hpp"

#include <utility>
#include <vector>

namespace penstock::worker {
namespace {

using kernels::cpu::IndexRange;
using kernels::cpu::MatrixSource;
using kernels::cpu::PackedMatrix;

/// Rows [index * rows / ranks, ...) of a matrix: one rank's share.
MatrixSource share(const TensorView& tensor, std::uint32_t rank, std::uint32_t ranks) {
  MatrixSource source;
  source.data = tensor.bytes.data();
  source.bytes = tensor.bytes.size();
  source.format = tensor.format;
  source.rows = tensor.rows;
  source.columns = tensor.columns;
  source.row_range = {tensor.rows * rank / ranks, tensor.rows * (rank + 1) / ranks};
  return source;
}

class Builder {
 public:
  Builder(const ModelSpec& spec, const TensorNames& names, TensorTable& table, std::uint32_t ranks,
          const Progress& progress)
      : spec_(spec), names_(names), table_(table), ranks_(ranks), progress_(progress) {
    for (const auto& [name, tensor] : table.tensors()) total_ += tensor.bytes.size();
  }

  Result<ModelWeights> build() {
    ModelWeights weights;
    weights.ranks.resize(ranks_);
    for (RankWeights& rank : weights.ranks) rank.layers.resize(spec_.layers);
    PENSTOCK_TRY_VOID(build_ends(weights));
    for (std::uint32_t layer = 0; layer < spec_.layers; ++layer) {
      prefix_ = names_.layer_prefix + std::to_string(layer) + ".";
      PENSTOCK_TRY_VOID(build_attention(weights, layer));
      PENSTOCK_TRY_VOID(build_ffn(weights, layer));
    }
    PENSTOCK_TRY_VOID(table_.expect_empty());
    if (progress_) progress_(total_, total_);
    weights.bytes = packed_;
    return weights;
  }

 private:
  Result<TensorView> take(const std::string& name, std::uint64_t rows, std::uint64_t columns) {
    return table_.take(name + ".weight", rows, columns);
  }
  Result<std::vector<float>> take_norm(const std::string& name, std::uint64_t count) {
    return table_.take_floats(name + ".weight", count);
  }

  /// After all ranks have packed their share of a tensor.
  void done_with(const TensorView& tensor) {
    table_.give_back(tensor);
    done_ += tensor.bytes.size();
    if (progress_) progress_(done_, total_);
  }

  Result<PackedMatrix> counted(Result<PackedMatrix> matrix) {
    if (matrix) packed_ += matrix->packed_bytes();
    return matrix;
  }

  Result<void> build_ends(ModelWeights& weights) {
    PENSTOCK_TRY(weights.output_norm, take_norm(names_.output_norm, spec_.hidden));
    PENSTOCK_TRY(const TensorView embedding, take(names_.embedding, spec_.vocabulary, spec_.hidden));
    PENSTOCK_TRY(weights.embedding, counted(PackedMatrix::pack(share(embedding, 0, 1))));
    if (!spec_.tied_embeddings) {
      PENSTOCK_TRY(const TensorView head, take(names_.head, spec_.vocabulary, spec_.hidden));
      PENSTOCK_TRY_VOID(build_head(weights, head));
      done_with(head);
    } else if (ranks_ > 1) {
      PENSTOCK_TRY_VOID(build_head(weights, embedding));
    }
    done_with(embedding);
    return {};
  }

  Result<void> build_head(ModelWeights& weights, const TensorView& head) {
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
      PENSTOCK_TRY(weights.ranks[rank].head, counted(PackedMatrix::pack(share(head, rank, ranks_))));
    }
    return {};
  }

  Result<void> build_attention(ModelWeights& weights, std::uint32_t layer) {
    const std::uint64_t q_rows = std::uint64_t{spec_.heads} * spec_.head_dim;
    const std::uint64_t kv_rows = std::uint64_t{spec_.kv_heads} * spec_.head_dim;
    PENSTOCK_TRY(const std::vector<float> norm, take_norm(prefix_ + names_.attention_norm, spec_.hidden));
    PENSTOCK_TRY(const TensorView q, take(prefix_ + names_.q, q_rows, spec_.hidden));
    PENSTOCK_TRY(const TensorView k, take(prefix_ + names_.k, kv_rows, spec_.hidden));
    PENSTOCK_TRY(const TensorView v, take(prefix_ + names_.v, kv_rows, spec_.hidden));
    PENSTOCK_TRY(const TensorView output, take(prefix_ + names_.output, spec_.hidden, q_rows));
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
      LayerWeights& part = weights.ranks[rank].layers[layer];
      part.attention_norm = norm;
      const std::vector<MatrixSource> sources{share(q, rank, ranks_), share(k, rank, ranks_), share(v, rank, ranks_)};
      PENSTOCK_TRY_VOID(build_qkv(part, sources));
      PENSTOCK_TRY(part.output, counted(PackedMatrix::pack(share(output, rank, ranks_))));
    }
    for (const TensorView& tensor : {q, k, v, output}) done_with(tensor);
    if (spec_.qkv_bias) PENSTOCK_TRY_VOID(build_bias(weights, layer, q_rows, kv_rows));
    if (spec_.qk_norm) {
      PENSTOCK_TRY(const std::vector<float> q_norm, take_norm(prefix_ + names_.q_norm, spec_.head_dim));
      PENSTOCK_TRY(const std::vector<float> k_norm, take_norm(prefix_ + names_.k_norm, spec_.head_dim));
      for (RankWeights& rank : weights.ranks) {
        rank.layers[layer].q_norm = q_norm;
        rank.layers[layer].k_norm = k_norm;
      }
    }
    return {};
  }

  Result<void> build_qkv(LayerWeights& part, const std::vector<MatrixSource>& sources) {
    const bool same = sources[0].format == sources[1].format && sources[0].format == sources[2].format;
    std::size_t column = 0;
    for (std::size_t i = 0; i < (same ? 1 : sources.size()); ++i) {
      QkvPart qkv;
      qkv.first_column = column;
      PENSTOCK_TRY(qkv.matrix, counted(same ? PackedMatrix::pack_stacked(sources) : PackedMatrix::pack(sources[i])));
      column += qkv.matrix.rows();
      part.qkv.push_back(std::move(qkv));
    }
    return {};
  }

  Result<void> build_bias(ModelWeights& weights, std::uint32_t layer, std::uint64_t q_rows, std::uint64_t kv_rows) {
    PENSTOCK_TRY(const std::vector<float> q, table_.take_floats(prefix_ + names_.q + ".bias", q_rows));
    PENSTOCK_TRY(const std::vector<float> k, table_.take_floats(prefix_ + names_.k + ".bias", kv_rows));
    PENSTOCK_TRY(const std::vector<float> v, table_.take_floats(prefix_ + names_.v + ".bias", kv_rows));
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
      std::vector<float>& bias = weights.ranks[rank].layers[layer].qkv_bias;
      for (const std::vector<float>* whole : {&q, &k, &v}) {
        const auto part = static_cast<std::ptrdiff_t>(whole->size() / ranks_);
        const auto begin = whole->begin() + part * static_cast<std::ptrdiff_t>(rank);
        bias.insert(bias.end(), begin, begin + part);
      }
    }
    return {};
  }

  Result<void> build_ffn(ModelWeights& weights, std::uint32_t layer) {
    PENSTOCK_TRY(const std::vector<float> norm, take_norm(prefix_ + names_.ffn_norm, spec_.hidden));
    PENSTOCK_TRY(const TensorView gate, take(prefix_ + names_.gate, spec_.ffn, spec_.hidden));
    PENSTOCK_TRY(const TensorView up, take(prefix_ + names_.up, spec_.ffn, spec_.hidden));
    PENSTOCK_TRY(const TensorView down, take(prefix_ + names_.down, spec_.hidden, spec_.ffn));
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
      LayerWeights& part = weights.ranks[rank].layers[layer];
      part.ffn_norm = norm;
      const MatrixSource gate_share = share(gate, rank, ranks_);
      const MatrixSource up_share = share(up, rank, ranks_);
      if (gate.format == up.format) {
        PENSTOCK_TRY(part.gate_up, counted(PackedMatrix::pack_gate_up(gate_share, up_share)));
      } else {
        PENSTOCK_TRY(part.gate, counted(PackedMatrix::pack(gate_share)));
        PENSTOCK_TRY(part.up, counted(PackedMatrix::pack(up_share)));
      }
      PENSTOCK_TRY(part.down, counted(PackedMatrix::pack(share(down, rank, ranks_))));
    }
    for (const TensorView& tensor : {gate, up, down}) done_with(tensor);
    return {};
  }

  const ModelSpec& spec_;
  const TensorNames& names_;
  TensorTable& table_;
  std::uint32_t ranks_;
  const Progress& progress_;
  std::string prefix_;
  std::uint64_t total_ = 0;
  std::uint64_t done_ = 0;
  std::size_t packed_ = 0;
};

}  // namespace

const TensorNames& gguf_names() {
  static const TensorNames names{"token_embd",  "output_norm", "output",   "blk.",        "attn_norm",
                                 "attn_q",      "attn_k",      "attn_v",   "attn_output", "attn_q_norm",
                                 "attn_k_norm", "ffn_norm",    "ffn_gate", "ffn_up",      "ffn_down"};
  return names;
}

const TensorNames& hugging_face_names() {
  static const TensorNames names{"model.embed_tokens", "model.norm",       "lm_head",
                                 "model.layers.",      "input_layernorm",  "self_attn.q_proj",
                                 "self_attn.k_proj",   "self_attn.v_proj", "self_attn.o_proj",
                                 "self_attn.q_norm",   "self_attn.k_norm", "post_attention_layernorm",
                                 "mlp.gate_proj",      "mlp.up_proj",      "mlp.down_proj"};
  return names;
}

Result<ModelWeights> build_weights(const ModelSpec& spec, const TensorNames& names, TensorTable& table,
                                   std::uint32_t ranks, const Progress& progress) {
  PENSTOCK_TRY_VOID(validate_tensor_parallel(spec, ranks));
  return Builder(spec, names, table, ranks, progress).build();
}

}  // namespace penstock::worker
