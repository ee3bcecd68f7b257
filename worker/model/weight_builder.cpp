#include "worker/model/weight_builder.hpp"

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "worker/model/expert_builder.hpp"
#include "worker/model/tensor_packer.hpp"

namespace penstock::worker {
namespace {

using kernels::cpu::MatrixSource;
using kernels::cpu::PackedMatrix;

class Builder {
 public:
  Builder(const ModelSpec& spec, const TensorNames& names, TensorTable& table, const LoadOptions& options)
      : spec_(spec),
        names_(names),
        table_(table),
        packer_(table, options.progress),
        ranks_(options.tensor_parallel),
        keeps_fp8_(options.fp8 == Fp8Loading::keep && options.tensor_parallel == 1) {}

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
      PENSTOCK_TRY_VOID(spec_.experts ? build_experts(spec_, names_, layer, packer_, weights)
                                      : build_ffn(weights, layer));
    }
    PENSTOCK_TRY_VOID(table_.expect_empty());
    packer_.finish();
    weights.bytes = packer_.packed_bytes();
    return weights;
  }

 private:
  /// Whether the layer's matrices are all FP8 and to be kept as they are.
  bool keeps_layer() const {
    const std::string* const all[] = {&names_.q,    &names_.k,  &names_.v,   &names_.output,
                                      &names_.gate, &names_.up, &names_.down};
    return keeps_fp8_ && std::all_of(std::begin(all), std::end(all),
                                     [&](const std::string* name) { return packer_.is_fp8(prefix_ + *name); });
  }
  Result<Fp8Matrix> keep(const std::string& name, std::uint64_t rows, std::uint64_t columns) {
    PENSTOCK_TRY(Fp8Matrix matrix, take_fp8(table_, prefix_ + name, rows, columns));
    packer_.kept(matrix.codes.size());
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

  Result<void> build_ends(ModelWeights& weights) {
    PENSTOCK_TRY(weights.output_norm, packer_.take_norm(names_.output_norm, spec_.hidden));
    PENSTOCK_TRY(const TensorView embedding, packer_.take(names_.embedding, spec_.vocabulary, spec_.hidden));
    PENSTOCK_TRY(weights.embedding, packer_.counted(PackedMatrix::pack(share(embedding, 0, 1))));
    if (!spec_.tied_embeddings) {
      PENSTOCK_TRY(const TensorView head, packer_.take(names_.head, spec_.vocabulary, spec_.hidden));
      PENSTOCK_TRY_VOID(build_head(weights, head));
      packer_.done_with(head);
    } else if (ranks_ > 1) {
      PENSTOCK_TRY_VOID(build_head(weights, embedding));
    }
    packer_.done_with(embedding);
    return {};
  }

  Result<void> build_head(ModelWeights& weights, const TensorView& head) {
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
      PENSTOCK_TRY(weights.ranks[rank].head, packer_.counted(PackedMatrix::pack(share(head, rank, ranks_))));
    }
    return {};
  }

  Result<void> build_attention(ModelWeights& weights, std::uint32_t layer) {
    const std::uint64_t q_rows = std::uint64_t{spec_.heads} * spec_.head_dim;
    const std::uint64_t kv_rows = std::uint64_t{spec_.kv_heads} * spec_.head_dim;
    PENSTOCK_TRY(const std::vector<float> norm, packer_.take_norm(prefix_ + names_.attention_norm, spec_.hidden));
    if (keeps_layer()) {
      weights.ranks[0].layers[layer].attention_norm = norm;
      PENSTOCK_TRY_VOID(keep_layer(weights.ranks[0].layers[layer], q_rows, kv_rows));
    } else {
      PENSTOCK_TRY_VOID(build_attention_matrices(weights, layer, norm));
    }
    if (spec_.qkv_bias) PENSTOCK_TRY_VOID(build_bias(weights, layer, q_rows, kv_rows));
    if (spec_.output_bias) {
      PENSTOCK_TRY(const auto bias, table_.take_floats(prefix_ + names_.output + ".bias", spec_.hidden));
      for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
        weights.ranks[rank].layers[layer].output_bias = share_of(bias, rank, ranks_);
      }
    }
    if (spec_.attention_sinks) {
      PENSTOCK_TRY(const auto sinks, table_.take_floats(prefix_ + names_.sinks, spec_.heads));
      for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
        weights.ranks[rank].layers[layer].sinks = share_of(sinks, rank, ranks_);
      }
    }
    if (spec_.qk_norm) {
      PENSTOCK_TRY(const std::vector<float> q_norm, packer_.take_norm(prefix_ + names_.q_norm, spec_.head_dim));
      PENSTOCK_TRY(const std::vector<float> k_norm, packer_.take_norm(prefix_ + names_.k_norm, spec_.head_dim));
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
    PENSTOCK_TRY(const TensorView q, packer_.take(prefix_ + names_.q, q_rows, spec_.hidden));
    PENSTOCK_TRY(const TensorView k, packer_.take(prefix_ + names_.k, kv_rows, spec_.hidden));
    PENSTOCK_TRY(const TensorView v, packer_.take(prefix_ + names_.v, kv_rows, spec_.hidden));
    PENSTOCK_TRY(const TensorView output, packer_.take(prefix_ + names_.output, spec_.hidden, q_rows));
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
      LayerWeights& part = weights.ranks[rank].layers[layer];
      part.attention_norm = norm;
      const std::vector<MatrixSource> sources{share(q, rank, ranks_), share(k, rank, ranks_), share(v, rank, ranks_)};
      PENSTOCK_TRY_VOID(build_qkv(part, sources));
      PENSTOCK_TRY(part.output, packer_.counted(PackedMatrix::pack(share(output, rank, ranks_))));
    }
    for (const TensorView& tensor : {q, k, v, output}) packer_.done_with(tensor);
    return {};
  }

  Result<void> build_qkv(LayerWeights& part, const std::vector<MatrixSource>& sources) {
    const bool same = sources[0].format == sources[1].format && sources[0].format == sources[2].format;
    std::size_t column = 0;
    for (std::size_t i = 0; i < (same ? 1 : sources.size()); ++i) {
      QkvPart qkv;
      qkv.first_column = column;
      PENSTOCK_TRY(qkv.matrix,
                   packer_.counted(same ? PackedMatrix::pack_stacked(sources) : PackedMatrix::pack(sources[i])));
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
        const std::vector<float> part = share_of(*whole, rank, ranks_);
        bias.insert(bias.end(), part.begin(), part.end());
      }
    }
    return {};
  }

  Result<void> build_ffn(ModelWeights& weights, std::uint32_t layer) {
    PENSTOCK_TRY(const std::vector<float> norm, packer_.take_norm(prefix_ + names_.ffn_norm, spec_.hidden));
    if (weights.ranks[0].layers[layer].fp8 != nullptr) {
      weights.ranks[0].layers[layer].ffn_norm = norm;
      return {};
    }
    PENSTOCK_TRY(const TensorView gate, packer_.take(prefix_ + names_.gate, spec_.ffn, spec_.hidden));
    PENSTOCK_TRY(const TensorView up, packer_.take(prefix_ + names_.up, spec_.ffn, spec_.hidden));
    PENSTOCK_TRY(const TensorView down, packer_.take(prefix_ + names_.down, spec_.hidden, spec_.ffn));
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
      LayerWeights& part = weights.ranks[rank].layers[layer];
      part.ffn_norm = norm;
      const MatrixSource gate_share = share(gate, rank, ranks_);
      const MatrixSource up_share = share(up, rank, ranks_);
      if (gate.format == up.format) {
        PENSTOCK_TRY(part.gate_up, packer_.counted(PackedMatrix::pack_gate_up(gate_share, up_share)));
      } else {
        PENSTOCK_TRY(part.gate, packer_.counted(PackedMatrix::pack(gate_share)));
        PENSTOCK_TRY(part.up, packer_.counted(PackedMatrix::pack(up_share)));
      }
      PENSTOCK_TRY(part.down, packer_.counted(PackedMatrix::pack(share(down, rank, ranks_))));
    }
    for (const TensorView& tensor : {gate, up, down}) packer_.done_with(tensor);
    return {};
  }

  const ModelSpec& spec_;
  const TensorNames& names_;
  TensorTable& table_;
  TensorPacker packer_;
  std::uint32_t ranks_;
  bool keeps_fp8_;
  std::string prefix_;
};

TensorNames with_experts(TensorNames names, ExpertNames experts) {
  names.experts = std::move(experts);
  return names;
}

}  // namespace

const TensorNames& gguf_names() {
  static const TensorNames names{"token_embd",
                                 "output_norm",
                                 "output",
                                 "blk.",
                                 "attn_norm",
                                 "attn_q",
                                 "attn_k",
                                 "attn_v",
                                 "attn_output",
                                 "attn_q_norm",
                                 "attn_k_norm",
                                 "ffn_norm",
                                 "ffn_gate",
                                 "ffn_up",
                                 "ffn_down",
                                 "",
                                 {"ffn_gate_inp", "", "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"}};
  return names;
}

const TensorNames& hugging_face_names(std::string_view architecture) {
  static const TensorNames llama{"model.embed_tokens",
                                 "model.norm",
                                 "lm_head",
                                 "model.layers.",
                                 "input_layernorm",
                                 "self_attn.q_proj",
                                 "self_attn.k_proj",
                                 "self_attn.v_proj",
                                 "self_attn.o_proj",
                                 "self_attn.q_norm",
                                 "self_attn.k_norm",
                                 "post_attention_layernorm",
                                 "mlp.gate_proj",
                                 "mlp.up_proj",
                                 "mlp.down_proj",
                                 "self_attn.sinks",
                                 {}};
  static const TensorNames gptoss =
      with_experts(llama, {"mlp.router", "mlp.experts.", "gate_up_proj", "", "down_proj"});
  static const TensorNames qwen3moe =
      with_experts(llama, {"mlp.gate", "mlp.experts.", "gate_proj", "up_proj", "down_proj"});
  static const TensorNames mixtral =
      with_experts(llama, {"block_sparse_moe.gate", "block_sparse_moe.experts.", "w1", "w3", "w2"});
  if (architecture == "gptoss") return gptoss;
  if (architecture == "qwen3moe") return qwen3moe;
  return architecture == "mixtral" ? mixtral : llama;
}

Result<ModelWeights> build_weights(const ModelSpec& spec, const TensorNames& names, TensorTable& table,
                                   const LoadOptions& options) {
  PENSTOCK_TRY_VOID(validate_tensor_parallel(spec, options.tensor_parallel));
  return Builder(spec, names, table, options).build();
}

}  // namespace penstock::worker
