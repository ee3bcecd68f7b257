#include "worker/model/weight_builder.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <span>
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

TensorView rows_of(const TensorView& tensor, std::uint64_t first, std::uint64_t count) {
  const std::uint64_t row_bytes = tensor.bytes.size() / tensor.rows;
  TensorView part = tensor;
  part.rows = count;
  part.bytes = tensor.bytes.subspan(first * row_bytes, count * row_bytes);
  return part;
}

class Builder {
 public:
  Builder(const ModelSpec& spec, const TensorNames& names, TensorTable& table, const LoadOptions& options)
      : spec_(spec),
        names_(names),
        table_(table),
        ranks_(options.tensor_parallel),
        keeps_fp8_(options.fp8 == Fp8Loading::keep && options.tensor_parallel == 1),
        progress_(options.progress) {
    for (const auto& [name, tensor] : table.tensors()) total_ += tensor.bytes.size();
  }

  Result<ModelWeights> build() {
    ModelWeights weights;
    weights.ranks.resize(ranks_);
    for (RankWeights& rank : weights.ranks) rank.layers.resize(spec_.layers);
    PENSTOCK_TRY_VOID(build_ends(weights));
    for (std::uint32_t layer = 0; layer < spec_.layers; ++layer) {
      prefix_ = names_.layer_prefix + std::to_string(layer) + ".";
      // Scales of an FP8 KV cache, which is bf16 here.
      for (const char* scale : {"self_attn.k_scale", "self_attn.v_scale"}) table_.drop(prefix_ + scale);
      for (const std::string* name : {&names_.k, &names_.v}) {
        for (const char* scale : {".k_scale", ".v_scale", ".output_scale"}) table_.drop(prefix_ + *name + scale);
      }
      PENSTOCK_TRY_VOID(build_attention(weights, layer));
      PENSTOCK_TRY_VOID(spec_.experts ? build_experts(weights, layer) : build_ffn(weights, layer));
    }
    PENSTOCK_TRY_VOID(table_.expect_empty());
    if (progress_) progress_(total_, total_);
    weights.bytes = packed_;
    return weights;
  }

 private:
  bool is_fp8(const std::string& name) const {
    const auto found = table_.tensors().find(name + ".weight");
    return found != table_.tensors().end() && found->second.is_e4m3;
  }

  /// As the file has it; FP8 weights as bf16 in memory of their own.
  Result<TensorView> take(const std::string& name, std::uint64_t rows, std::uint64_t columns) {
    if (!is_fp8(name)) return table_.take(name + ".weight", rows, columns);
    PENSTOCK_TRY(const Fp8Matrix matrix, take_fp8(table_, name, rows, columns));
    std::vector<std::uint16_t> values(rows * columns);
    for (std::uint64_t row = 0; row < rows; ++row) matrix.widen_row(row, values.data() + row * columns);
    TensorView view;
    view.format = kernels::cpu::WeightFormat::bf16;
    view.rows = rows;
    view.columns = columns;
    view.bytes = std::as_bytes(std::span(values));
    widened_.emplace(view.bytes.data(), std::move(values));
    return view;
  }
  Result<std::vector<float>> take_norm(const std::string& name, std::uint64_t count) {
    return table_.take_floats(name + ".weight", count);
  }

  /// After all ranks have packed their share of a tensor.
  void done_with(const TensorView& tensor) {
    if (const auto own = widened_.find(tensor.bytes.data()); own != widened_.end()) {
      add_progress(tensor.rows * tensor.columns);
      widened_.erase(own);
      return;
    }
    table_.give_back(tensor);
    add_progress(tensor.bytes.size());
  }
  void add_progress(std::uint64_t bytes) {
    done_ += bytes;
    if (progress_) progress_(done_, total_);
  }

  /// Whether the layer's matrices are all FP8 and to be kept as they are.
  bool keeps_layer() const {
    const std::string* const all[] = {&names_.q,    &names_.k,  &names_.v,   &names_.output,
                                      &names_.gate, &names_.up, &names_.down};
    return keeps_fp8_ && std::all_of(std::begin(all), std::end(all),
                                     [&](const std::string* name) { return is_fp8(prefix_ + *name); });
  }
  Result<Fp8Matrix> keep(const std::string& name, std::uint64_t rows, std::uint64_t columns) {
    PENSTOCK_TRY(Fp8Matrix matrix, take_fp8(table_, prefix_ + name, rows, columns));
    packed_ += matrix.codes.size();
    add_progress(matrix.codes.size());
    return matrix;
  }
  Result<void> keep_layer(LayerWeights& part, std::uint64_t q_rows, std::uint64_t kv_rows) {
    part.fp8 = std::make_unique<Fp8Layer>();
    PENSTOCK_TRY(part.fp8->q, keep(names_.q, q_rows, spec_.hidden));
    PENSTOCK_TRY(part.fp8->k, keep(names_.k, kv_rows, spec_.hidden));
    PENSTOCK_TRY(part.fp8->v, keep(names_.v, kv_rows, spec_.hidden));
    PENSTOCK_TRY(part.fp8->output, keep(names_.output, spec_.hidden, q_rows));
    PENSTOCK_TRY(part.fp8->gate, keep(names_.gate, spec_.ffn, spec_.hidden));
    PENSTOCK_TRY(part.fp8->up, keep(names_.up, spec_.ffn, spec_.hidden));
    PENSTOCK_TRY(part.fp8->down, keep(names_.down, spec_.hidden, spec_.ffn));
    return {};
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
    if (keeps_layer()) {
      weights.ranks[0].layers[layer].attention_norm = norm;
      PENSTOCK_TRY_VOID(keep_layer(weights.ranks[0].layers[layer], q_rows, kv_rows));
    } else {
      PENSTOCK_TRY_VOID(build_attention_matrices(weights, layer, norm));
    }
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

  Result<void> build_attention_matrices(ModelWeights& weights, std::uint32_t layer, const std::vector<float>& norm) {
    const std::uint64_t q_rows = std::uint64_t{spec_.heads} * spec_.head_dim;
    const std::uint64_t kv_rows = std::uint64_t{spec_.kv_heads} * spec_.head_dim;
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
    if (weights.ranks[0].layers[layer].fp8 != nullptr) {
      weights.ranks[0].layers[layer].ffn_norm = norm;
      return {};
    }
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

  /// The matrices of one expert or, where the file holds them one below the other, of all.
  struct ExpertTensors {
    TensorView gate, up, down;
  };
  Result<ExpertTensors> take_experts(const std::string& prefix, std::uint64_t count) {
    const std::uint64_t ffn = spec_.experts->ffn, hidden = spec_.hidden;
    ExpertTensors tensors;
    PENSTOCK_TRY(tensors.gate, take(prefix + names_.experts.gate, count * ffn, hidden));
    PENSTOCK_TRY(tensors.up, take(prefix + names_.experts.up, count * ffn, hidden));
    PENSTOCK_TRY(tensors.down, take(prefix + names_.experts.down, count * hidden, ffn));
    if (tensors.gate.format != tensors.up.format) {
      return make_error(ErrorCode::unsupported, "tensors " + prefix + names_.experts.gate + " and " +
                                                    names_.experts.up + " of experts have different types");
    }
    return tensors;
  }

  Result<void> build_experts(ModelWeights& weights, std::uint32_t layer) {
    const std::uint32_t count = spec_.experts->count;
    PENSTOCK_TRY(const std::vector<float> norm, take_norm(prefix_ + names_.ffn_norm, spec_.hidden));
    PENSTOCK_TRY(const TensorView router, take(prefix_ + names_.experts.router, count, spec_.hidden));
    for (RankWeights& rank : weights.ranks) {
      rank.layers[layer].ffn_norm = norm;
      rank.layers[layer].experts.resize(count);
      PENSTOCK_TRY(rank.layers[layer].router, counted(PackedMatrix::pack(share(router, 0, 1))));
    }
    done_with(router);
    const bool is_stacked = names_.experts.each.empty();
    const std::uint32_t stacks = is_stacked ? 1 : count;
    for (std::uint32_t i = 0; i < stacks; ++i) {
      const std::string prefix = prefix_ + (is_stacked ? "" : names_.experts.each + std::to_string(i) + ".");
      PENSTOCK_TRY(const ExpertTensors tensors, take_experts(prefix, count / stacks));
      for (std::uint32_t inside = 0; inside < count / stacks; ++inside) {
        PENSTOCK_TRY_VOID(pack_expert(weights, layer, i + inside, tensors, inside));
      }
      for (const TensorView& tensor : {tensors.gate, tensors.up, tensors.down}) done_with(tensor);
    }
    return {};
  }

  /// `inside`: the expert's place among those of the tensors.
  Result<void> pack_expert(ModelWeights& weights, std::uint32_t layer, std::uint32_t expert,
                           const ExpertTensors& tensors, std::uint32_t inside) {
    const std::uint64_t ffn = spec_.experts->ffn;
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
      ExpertWeights& part = weights.ranks[rank].layers[layer].experts[expert];
      const auto gate = share(rows_of(tensors.gate, inside * ffn, ffn), rank, ranks_);
      const auto up = share(rows_of(tensors.up, inside * ffn, ffn), rank, ranks_);
      const auto down = share(rows_of(tensors.down, inside * std::uint64_t{spec_.hidden}, spec_.hidden), rank, ranks_);
      PENSTOCK_TRY(part.gate_up, counted(PackedMatrix::pack_gate_up(gate, up)));
      PENSTOCK_TRY(part.down, counted(PackedMatrix::pack(down)));
    }
    return {};
  }

  const ModelSpec& spec_;
  const TensorNames& names_;
  TensorTable& table_;
  std::uint32_t ranks_;
  bool keeps_fp8_;
  const std::function<void(std::uint64_t, std::uint64_t)>& progress_;
  std::map<const std::byte*, std::vector<std::uint16_t>> widened_;  // until they are packed
  std::string prefix_;
  std::uint64_t total_ = 0;
  std::uint64_t done_ = 0;
  std::size_t packed_ = 0;
};

TensorNames with_experts(TensorNames names, ExpertNames experts) {
  names.experts = std::move(experts);
  return names;
}

}  // namespace

const TensorNames& gguf_names() {
  static const TensorNames names{"token_embd",  "output_norm",
                                 "output",      "blk.",
                                 "attn_norm",   "attn_q",
                                 "attn_k",      "attn_v",
                                 "attn_output", "attn_q_norm",
                                 "attn_k_norm", "ffn_norm",
                                 "ffn_gate",    "ffn_up",
                                 "ffn_down",    {"ffn_gate_inp", "", "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"}};
  return names;
}

const TensorNames& hugging_face_names(std::string_view architecture) {
  static const TensorNames llama{
      "model.embed_tokens", "model.norm",       "lm_head",          "model.layers.",
      "input_layernorm",    "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
      "self_attn.o_proj",   "self_attn.q_norm", "self_attn.k_norm", "post_attention_layernorm",
      "mlp.gate_proj",      "mlp.up_proj",      "mlp.down_proj",    {}};
  static const TensorNames qwen3moe =
      with_experts(llama, {"mlp.gate", "mlp.experts.", "gate_proj", "up_proj", "down_proj"});
  static const TensorNames mixtral =
      with_experts(llama, {"block_sparse_moe.gate", "block_sparse_moe.experts.", "w1", "w3", "w2"});
  if (architecture == "qwen3moe") return qwen3moe;
  return architecture == "mixtral" ? mixtral : llama;
}

Result<ModelWeights> build_weights(const ModelSpec& spec, const TensorNames& names, TensorTable& table,
                                   const LoadOptions& options) {
  PENSTOCK_TRY_VOID(validate_tensor_parallel(spec, options.tensor_parallel));
  return Builder(spec, names, table, options).build();
}

}  // namespace penstock::worker
