#include "worker/model/expert_builder.hpp"

#include <span>
#include <string>
#include <vector>

#include "worker/model/mxfp4.hpp"

namespace penstock::worker {
namespace {

using kernels::cpu::PackedMatrix;

/// The matrices of one expert or, where the file holds them one below the other, of all.
struct ExpertTensors {
  TensorView gate, up, down;
};

class ExpertBuilder {
 public:
  ExpertBuilder(const ModelSpec& spec, const TensorNames& names, std::uint32_t layer, TensorPacker& packer,
                ModelWeights& weights)
      : spec_(spec),
        names_(names.experts),
        prefix_(names.layer_prefix + std::to_string(layer) + "."),
        layer_(layer),
        packer_(packer),
        weights_(weights),
        ranks_(static_cast<std::uint32_t>(weights.ranks.size())) {}

  Result<void> build_router(const std::string& norm_name) {
    PENSTOCK_TRY(const std::vector<float> norm, packer_.take_norm(prefix_ + norm_name, spec_.hidden));
    PENSTOCK_TRY(const TensorView router, packer_.take(prefix_ + names_.router, count(), spec_.hidden));
    std::vector<float> bias;
    if (spec_.experts->biases) {
      PENSTOCK_TRY(bias, packer_.table().take_floats(prefix_ + names_.router + ".bias", count()));
    }
    for (RankWeights& rank : weights_.ranks) {
      LayerWeights& part = rank.layers[layer_];
      part.ffn_norm = norm;
      part.experts.resize(count());
      part.router_bias = bias;
      PENSTOCK_TRY(part.router, packer_.counted(PackedMatrix::pack(share(router, 0, 1))));
    }
    packer_.done_with(router);
    return {};
  }

  Result<void> build_plain() {
    const bool is_stacked = names_.each.empty();
    const std::uint32_t stacks = is_stacked ? 1 : count();
    for (std::uint32_t i = 0; i < stacks; ++i) {
      const std::string prefix = prefix_ + (is_stacked ? "" : names_.each + std::to_string(i) + ".");
      PENSTOCK_TRY(const ExpertTensors tensors, take(prefix, count() / stacks));
      for (std::uint32_t inside = 0; inside < count() / stacks; ++inside) {
        PENSTOCK_TRY_VOID(pack(i + inside, tensors, inside));
      }
      for (const TensorView& tensor : {tensors.gate, tensors.up, tensors.down}) packer_.done_with(tensor);
    }
    return {};
  }

  /// gpt-oss: all experts in one tensor of MXFP4, rows of gate and up in turn, and a bias for every row.
  Result<void> build_mxfp4() {
    TensorTable& table = packer_.table();
    const std::uint64_t ffn = spec_.experts->ffn, hidden = spec_.hidden;
    const std::string gate_up_name = prefix_ + names_.each + names_.gate,
                      down_name = prefix_ + names_.each + names_.down;
    PENSTOCK_TRY(const Mxfp4Matrix gate_up, take_mxfp4(table, gate_up_name, count(), 2 * ffn, hidden));
    PENSTOCK_TRY(const Mxfp4Matrix down, take_mxfp4(table, down_name, count(), hidden, ffn));
    PENSTOCK_TRY(const std::vector<float> gate_up_bias, table.take_floats(gate_up_name + "_bias", count(), 2 * ffn));
    PENSTOCK_TRY(const std::vector<float> down_bias, table.take_floats(down_name + "_bias", count(), hidden));
    std::vector<std::uint16_t> gates(ffn * hidden), ups(ffn * hidden), downs(hidden * ffn);
    for (std::uint32_t e = 0; e < count(); ++e) {
      for (std::uint64_t row = 0; row < ffn; ++row) {
        gate_up.widen_row(2 * (e * ffn + row), gates.data() + row * hidden);
        gate_up.widen_row(2 * (e * ffn + row) + 1, ups.data() + row * hidden);
      }
      for (std::uint64_t row = 0; row < hidden; ++row) down.widen_row(e * hidden + row, downs.data() + row * ffn);
      PENSTOCK_TRY_VOID(pack(e, {bf16(gates, ffn, hidden), bf16(ups, ffn, hidden), bf16(downs, hidden, ffn)}, 0));
      add_biases(e, std::span(gate_up_bias).subspan(e * 2 * ffn, 2 * ffn),
                 std::span(down_bias).subspan(e * hidden, hidden));
    }
    for (const TensorView* tensor : {&gate_up.codes, &gate_up.scales, &down.codes, &down.scales}) {
      packer_.done_with(*tensor);
    }
    return {};
  }

 private:
  std::uint32_t count() const { return spec_.experts->count; }

  Result<ExpertTensors> take(const std::string& prefix, std::uint64_t matrices) {
    const std::uint64_t ffn = spec_.experts->ffn, hidden = spec_.hidden;
    ExpertTensors tensors;
    PENSTOCK_TRY(tensors.gate, packer_.take(prefix + names_.gate, matrices * ffn, hidden));
    PENSTOCK_TRY(tensors.up, packer_.take(prefix + names_.up, matrices * ffn, hidden));
    PENSTOCK_TRY(tensors.down, packer_.take(prefix + names_.down, matrices * hidden, ffn));
    if (tensors.gate.format != tensors.up.format) {
      return make_error(ErrorCode::unsupported,
                        "tensors " + prefix + names_.gate + " and " + names_.up + " of experts have different types");
    }
    return tensors;
  }

  static TensorView bf16(const std::vector<std::uint16_t>& values, std::uint64_t rows, std::uint64_t columns) {
    TensorView view;
    view.format = kernels::cpu::WeightFormat::bf16;
    view.rows = rows;
    view.columns = columns;
    view.bytes = std::as_bytes(std::span(values));
    return view;
  }

  /// `inside`: the expert's place among those of the tensors.
  Result<void> pack(std::uint32_t expert, const ExpertTensors& tensors, std::uint64_t inside) {
    const std::uint64_t ffn = spec_.experts->ffn, hidden = spec_.hidden;
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
      ExpertWeights& part = weights_.ranks[rank].layers[layer_].experts[expert];
      const auto gate = share(rows_of(tensors.gate, inside * ffn, ffn), rank, ranks_);
      const auto up = share(rows_of(tensors.up, inside * ffn, ffn), rank, ranks_);
      const auto down = share(rows_of(tensors.down, inside * hidden, hidden), rank, ranks_);
      PENSTOCK_TRY(part.gate_up, packer_.counted(PackedMatrix::pack_gate_up(gate, up)));
      PENSTOCK_TRY(part.down, packer_.counted(PackedMatrix::pack(down)));
    }
    return {};
  }

  /// `gate_up`: of gate and up in turn.
  void add_biases(std::uint32_t expert, std::span<const float> gate_up, std::span<const float> down) {
    const std::size_t rows = spec_.experts->ffn / ranks_;
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
      ExpertWeights& part = weights_.ranks[rank].layers[layer_].experts[expert];
      part.gate_up_bias.resize(2 * rows);
      for (std::size_t row = 0; row < rows; ++row) {
        const std::size_t packed = row / 8 * 16 + row % 8;
        part.gate_up_bias[packed] = gate_up[2 * (rank * rows + row)];
        part.gate_up_bias[packed + 8] = gate_up[2 * (rank * rows + row) + 1];
      }
      part.down_bias = share_of({down.begin(), down.end()}, rank, ranks_);
    }
  }

  const ModelSpec& spec_;
  const ExpertNames& names_;
  std::string prefix_;
  std::uint32_t layer_;
  TensorPacker& packer_;
  ModelWeights& weights_;
  std::uint32_t ranks_;
};

}  // namespace

Result<void> build_experts(const ModelSpec& spec, const TensorNames& names, std::uint32_t layer, TensorPacker& packer,
                           ModelWeights& weights) {
  ExpertBuilder builder(spec, names, layer, packer, weights);
  PENSTOCK_TRY_VOID(builder.build_router(names.ffn_norm));
  return spec.architecture == "gptoss" ? builder.build_mxfp4() : builder.build_plain();
}

}  // namespace penstock::worker
