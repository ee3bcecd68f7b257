// Matrix products for one vector type S; included by level_*.cpp only.
//
// Order of every output element, whatever m, slice and path:
//   quantised: for each block of 32 columns ascending: acc = fma(float(exact integer dot), scale_w * scale_x, acc),
//              (a scale each 16 columns: twice), then acc = fma(min, scaled_sum_x, acc) for formats with a min;
//   dense:     for each column ascending: acc = fma(w, x, acc).
// The vector lanes are rows, so there are no horizontal sums. Work is a tile of 16 rows, one or two vectors of S::Tile,
// times 4 (quantised) or 6 (dense) tokens, which fills the 16 vector registers of AVX2; twice that with 32 wide ones.
// Codes are unpacked anew for every 4 tokens: on Zen 3 that is as fast as reading weights unpacked beforehand, since
// loads are then the limit, and keeps a tile in L1 (10 KiB at 1,024 columns). A 16-bit multiply-add does 16 products
// where a float one does 8, so products exceed the float peak.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/elementwise_impl.hpp"
#include "kernels/cpu/kernel_table.hpp"
#include "kernels/cpu/tile_layout.hpp"

namespace penstock::kernels::cpu::detail {

inline constexpr std::size_t token_block = 128;      // rows of x per pass over a tile; their int16 form stays in L2
inline constexpr std::size_t dense_columns = 256;    // 16 KiB of floats
inline constexpr std::size_t prefetch_bytes = 4096;  // hides memory: from 60 to 85 % of read bandwidth at m = 1

/// One row of x in int16 form, at some block.
struct TokenRef {
  const std::int16_t* q;
  const float* scale;
  const float* scaled_sum;
  const std::int32_t* sum;
};

template <class S, WeightFormat Format>
struct QuantisedTile {
  using F = typename S::F;
  using I = typename S::I;
  static constexpr RecordLayout layout = record_layout(Format);
  static constexpr std::size_t steps = layout.code_bits;  // 32-bit words of a row in a block
  static constexpr std::size_t pairs_a_step = 16 / steps;
  static constexpr std::size_t halves = layout.scales_per_block;

  /// Scales (or mins) of row group g.
  static inline F scales(const std::byte* at, std::size_t g) {
    if constexpr (layout.float_scales) {
      return S::load(reinterpret_cast<const float*>(at) + S::lanes * g);
    } else {
      return S::load_f16(reinterpret_cast<const std::uint16_t*>(at) + S::lanes * g);
    }
  }

  /// Pair P (two columns of 8 rows, as signed 16-bit halves) of a word of codes.
  template <std::size_t P>
  static inline I pair(I words) {
    if constexpr (layout.code_bits == 4) {
      const I mask = S::set1_word(0x000f000f);
      if constexpr (P == 0) return S::bit_and(words, mask);
      if constexpr (P == 3) return S::template halves_right<12>(words);
      return S::bit_and(S::template halves_right<4 * P>(words), mask);
    } else if constexpr (layout.signed_codes) {
      if constexpr (P == 1) return S::template halves_right_signed<8>(words);
      return S::template halves_right_signed<8>(S::template halves_left<8>(words));
    } else {
      if constexpr (P == 1) return S::template halves_right<8>(words);
      return S::bit_and(words, S::set1_word(0x00ff00ff));
    }
  }

  /// Integer accumulators start at -code_offset * sum(x), so that unsigned codes stand for signed weights.
  static inline I start(const TokenRef& x, std::size_t index) {
    if constexpr (layout.code_offset == 0) return S::set1_word(0);
    return S::set1_word(-layout.code_offset * x.sum[index]);
  }
};

/// acc[T][16] += a packed tile of `blocks` blocks times T rows of x; codes are unpacked in registers. `ahead`: how far
/// to prefetch.
template <class S, WeightFormat Format, int T>
void quantised_tile(const std::byte* records, std::size_t blocks, const TokenRef* x, float* acc, std::size_t ahead) {
  using Tile = QuantisedTile<S, Format>;
  using F = typename S::F;
  using I = typename S::I;
  constexpr int groups = 16 / S::lanes;
  F total[groups][T];
  for (int t = 0; t < T; ++t) {
    for (int g = 0; g < groups; ++g) total[g][t] = S::load(acc + 16 * t + S::lanes * g);
  }
  for (std::size_t b = 0; b < blocks; ++b, records += Tile::layout.bytes()) {
    const std::byte* codes = records + Tile::layout.codes_at();
    for (std::size_t line = 0; line < Tile::layout.bytes(); line += 64) S::prefetch(records + ahead + line);
    for (std::size_t half = 0; half < Tile::halves; ++half) {
      I dot[groups][T];
      for (int t = 0; t < T; ++t) {
        for (int g = 0; g < groups; ++g) dot[g][t] = Tile::start(x[t], b);
      }
      I words[groups];
      auto use = [&]<std::size_t P>(std::size_t pair_index) {
        I pairs[groups];
        for (int g = 0; g < groups; ++g) pairs[g] = Tile::template pair<P>(words[g]);
        for (int t = 0; t < T; ++t) {
          const I values = S::broadcast_word(x[t].q + b * 32 + 2 * pair_index);
          for (int g = 0; g < groups; ++g) dot[g][t] = S::accumulate(dot[g][t], pairs[g], values);
        }
      };
      constexpr std::size_t steps = Tile::steps / Tile::halves;
#pragma GCC unroll 8
      for (std::size_t j = 0; j < steps; ++j) {
        const std::size_t step = half * steps + j;
        for (int g = 0; g < groups; ++g) words[g] = S::load_words(codes + step * 64 + g * S::lanes * 4);
        const std::size_t first = step * Tile::pairs_a_step;
        use.template operator()<0>(first);
        use.template operator()<1>(first + 1);
        if constexpr (Tile::pairs_a_step == 4) {
          use.template operator()<2>(first + 2);
          use.template operator()<3>(first + 3);
        }
      }
      const std::byte* scales = records + half * 16 * Tile::layout.scale_bytes();
      F scale[groups];
      for (int g = 0; g < groups; ++g) scale[g] = Tile::scales(scales, g);
      for (int t = 0; t < T; ++t) {
        const F sx = S::set1(x[t].scale[b]);
        for (int g = 0; g < groups; ++g) {
          total[g][t] = S::fma(S::to_float(dot[g][t]), S::mul(scale[g], sx), total[g][t]);
        }
      }
    }
    if constexpr (Tile::layout.has_min) {
      F min[groups];
      for (int g = 0; g < groups; ++g) min[g] = Tile::scales(records + Tile::layout.min_at(), g);
      for (int t = 0; t < T; ++t) {
        const F sum = S::set1(x[t].scaled_sum[b]);
        for (int g = 0; g < groups; ++g) total[g][t] = S::fma(min[g], sum, total[g][t]);
      }
    }
  }
  for (int t = 0; t < T; ++t) {
    for (int g = 0; g < groups; ++g) S::store(acc + 16 * t + S::lanes * g, total[g][t]);
  }
}

/// acc[T][16] += columns [0, columns) of a dense tile; x[t] points at the first of them.
template <class S, WeightFormat Format, int T>
void dense_tile(const std::byte* tile, std::size_t columns, const float* const* x, float* acc) {
  using F = typename S::F;
  constexpr int groups = 16 / S::lanes;
  F total[groups][T];
  for (int t = 0; t < T; ++t) {
    for (int g = 0; g < groups; ++g) total[g][t] = S::load(acc + 16 * t + S::lanes * g);
  }
  for (std::size_t c = 0; c < columns; ++c) {
    F w[groups];
    for (int g = 0; g < groups; ++g) {
      const std::size_t at = 16 * c + static_cast<std::size_t>(S::lanes * g);
      if constexpr (Format == WeightFormat::f32) {
        w[g] = S::load(reinterpret_cast<const float*>(tile) + at);
      } else if constexpr (Format == WeightFormat::f16) {
        w[g] = S::load_f16(reinterpret_cast<const std::uint16_t*>(tile) + at);
      } else {
        w[g] = S::load_bf16(reinterpret_cast<const std::uint16_t*>(tile) + at);
      }
    }
    for (int t = 0; t < T; ++t) {
      const F value = S::set1(x[t][c]);
      for (int g = 0; g < groups; ++g) total[g][t] = S::fma(w[g], value, total[g][t]);
    }
  }
  for (int t = 0; t < T; ++t) {
    for (int g = 0; g < groups; ++g) S::store(acc + 16 * t + S::lanes * g, total[g][t]);
  }
}

/// Calls run<T>(first token) so that all tokens [first, count) are covered.
template <int Most, class Run>
inline void for_token_groups(std::size_t first, std::size_t count, Run&& run) {
  std::size_t t = first;
  for (; t + Most <= count; t += Most) run.template operator()<Most>(t);
  if constexpr (Most > 6) return for_token_groups<Most / 2>(t, count, run);
  switch (count - t) {
    case 1:
      return run.template operator()<1>(t);
    case 2:
      return run.template operator()<2>(t);
    case 3:
      return run.template operator()<3>(t);
    case 4:
      if constexpr (Most > 4) run.template operator()<4>(t);
      return;
    case 5:
      if constexpr (Most > 5) run.template operator()<5>(t);
      return;
    default:
      return;
  }
}

/// The row of x that row t of the product reads.
template <class S>
inline std::size_t x_row(const MatmulCall& call, std::size_t t) {
  return call.x_rows == nullptr ? t : call.x_rows[t];
}

/// acc[count][16] = tile `index` times what rows [first, first + count) of the product read of x.
template <class S, WeightFormat Format>
void compute_tile(const MatmulCall& call, std::size_t index, std::size_t first, std::size_t count, float* acc) {
  const std::byte* tile = call.tiles + index * call.tile_bytes;
  for (std::size_t i = 0; i < count * 16; ++i) acc[i] = 0;
  if constexpr (!is_quantised(Format)) {
    const std::size_t stride = call.x.blocks * 32;
    for (std::size_t c = 0; c < call.columns; c += dense_columns) {
      const std::size_t columns = call.columns - c < dense_columns ? call.columns - c : dense_columns;
      for_token_groups<S::Tile::dense_tokens>(0, count, [&]<int T>(std::size_t t) {
        const float* x[T];
        for (int i = 0; i < T; ++i) x[i] = call.x.f32 + x_row<S>(call, first + t + i) * stride + c;
        dense_tile<typename S::Tile, Format, T>(tile + c * 16 * (Format == WeightFormat::f32 ? 4 : 2), columns, x,
                                                acc + 16 * t);
      });
    }
  } else {
    const std::size_t blocks = call.columns / 32;
    for_token_groups<S::Tile::quantised_tokens>(0, count, [&]<int T>(std::size_t t) {
      TokenRef x[T];
      for (int i = 0; i < T; ++i) {
        const std::size_t at = x_row<S>(call, first + t + i) * call.x.blocks;
        x[i] = {call.x.q + at * 32, call.x.scale + at, call.x.scaled_sum + at, call.x.sum + at};
      }
      // The first group of tokens brings the tile from memory, the others find it in L1.
      quantised_tile<typename S::Tile, Format, T>(tile, blocks, x, acc + 16 * t, t == 0 ? prefetch_bytes : 0);
    });
  }
}

/// Stores acc[count][16] of tile `index` with bias and residual.
template <class S>
void store_tile(const MatmulCall& call, std::size_t index, std::size_t first, std::size_t count, const float* acc) {
  const std::size_t row = index * tile_rows;
  const std::size_t valid = call.rows - row < tile_rows ? call.rows - row : tile_rows;
  for (std::size_t t = 0; t < count; ++t) {
    float* y = call.y + (first + t) * call.stride + row;
    const float* residual =
        call.residual == nullptr ? nullptr : call.residual + (first + t) * call.residual_stride + row;
    if (valid < tile_rows) {
      for (std::size_t i = 0; i < valid; ++i) {
        float value = acc[16 * t + i];
        if (call.bias != nullptr) value += call.bias[row + i];
        if (residual != nullptr) value += residual[i];
        y[i] = value;
      }
      continue;
    }
    for (std::size_t g = 0; g < 16; g += 8) {
      auto value = S::load(acc + 16 * t + g);
      if (call.bias != nullptr) value = S::add(value, S::load(call.bias + row + g));
      if (residual != nullptr) value = S::add(value, S::load(residual + g));
      S::store(y + g, value);
    }
  }
}

/// Adds acc[count][16] of tile `index`, weighted, to the rows of y that the call names.
template <class S>
void add_tile(const MatmulCall& call, std::size_t index, std::size_t first, std::size_t count, const float* acc) {
  const std::size_t row = index * tile_rows;
  const std::size_t valid = call.rows - row < tile_rows ? call.rows - row : tile_rows;
  for (std::size_t t = 0; t < count; ++t) {
    float* y = call.y + call.y_rows[first + t] * call.stride + row;
    const float weight = call.y_weights[first + t];
    std::size_t i = 0;
    for (; i + 8 <= valid; i += 8) {
      auto value = S::load(acc + 16 * t + i);
      if (call.bias != nullptr) value = S::add(value, S::load(call.bias + row + i));
      S::store(y + i, S::add(S::load(y + i), S::mul(S::set1(weight), value)));
    }
    for (; i < valid; ++i) {
      y[i] += weight * (call.bias == nullptr ? acc[16 * t + i] : acc[16 * t + i] + call.bias[row + i]);
    }
  }
}

template <class S, WeightFormat Format>
void matmul_format(const MatmulCall& call, Slice slice) {
  alignas(64) float acc[token_block * 16];
  const IndexRange tiles = split((call.rows + tile_rows - 1) / tile_rows, slice);
  for (std::size_t first = 0; first < call.m; first += token_block) {
    const std::size_t count = call.m - first < token_block ? call.m - first : token_block;
    for (std::size_t index = tiles.begin; index < tiles.end; ++index) {
      compute_tile<S, Format>(call, index, first, count, acc);
      if (call.y_rows != nullptr) {
        add_tile<S>(call, index, first, count, acc);
      } else {
        store_tile<S>(call, index, first, count, acc);
      }
    }
  }
}

/// Eight outputs of gates and ups; see GatedActivation.
template <class S>
inline typename S::F gated(GatedActivation activation, typename S::F gate, typename S::F up) {
  if (activation == GatedActivation::silu) return S::mul(silu<S>(gate), up);
  const auto limit = S::set1(7.0f), lowest = S::set1(-7.0f), one = S::set1(1.0f);
  const auto g = S::min(limit, gate);  // the second operand if one is NaN
  const auto u = S::max(lowest, S::min(limit, up));
  const auto sigmoid_part = S::add(one, exp<S>(S::mul(S::set1(-1.702f), g)));
  return S::mul(S::div(g, sigmoid_part), S::add(u, one));
}

/// Gate and up alternate in groups of 8 rows, so a tile gives 8 outputs and four tiles an activation block.
template <class S, WeightFormat Format>
void matmul_swiglu_format(const MatmulCall& call, Slice slice) {
  alignas(64) float acc[token_block * 16];
  alignas(64) float out[token_block][32];
  const IndexRange tiles = split(call.rows / tile_rows, slice, 4);
  for (std::size_t first = 0; first < call.m; first += token_block) {
    const std::size_t count = call.m - first < token_block ? call.m - first : token_block;
    for (std::size_t index = tiles.begin; index < tiles.end; index += 4) {
      const std::size_t group = tiles.end - index < 4 ? tiles.end - index : 4;
      for (std::size_t i = 0; i < 4; ++i) {
        if (i < group) compute_tile<S, Format>(call, index + i, first, count, acc);
        for (std::size_t t = 0; t < count; ++t) {
          auto value = S::zero();
          if (i < group) {
            auto gate = S::load(acc + 16 * t), up = S::load(acc + 16 * t + 8);
            if (call.bias != nullptr) {
              const float* bias = call.bias + (index + i) * tile_rows;
              gate = S::add(gate, S::load(bias));
              up = S::add(up, S::load(bias + 8));
            }
            value = gated<S>(call.activation, gate, up);
          }
          S::store(out[t] + 8 * i, value);
        }
      }
      for (std::size_t t = 0; t < count; ++t) {
        store_activations<S>(out[t], call.swiglu_out, first + t, index * 8, (index + group) * 8);
      }
    }
  }
}

/// Calls run<Format>() for a format known at run time.
template <class Run>
inline void for_format(WeightFormat format, Run&& run) {
  switch (format) {
    case WeightFormat::f32:
      return run.template operator()<WeightFormat::f32>();
    case WeightFormat::f16:
      return run.template operator()<WeightFormat::f16>();
    case WeightFormat::bf16:
      return run.template operator()<WeightFormat::bf16>();
    case WeightFormat::q8_0:
      return run.template operator()<WeightFormat::q8_0>();
    case WeightFormat::q4_0:
      return run.template operator()<WeightFormat::q4_0>();
    case WeightFormat::q4_1:
      return run.template operator()<WeightFormat::q4_1>();
    case WeightFormat::q4_k:
      return run.template operator()<WeightFormat::q4_k>();
    case WeightFormat::q6_k:
      return run.template operator()<WeightFormat::q6_k>();
  }
}

template <class S>
void matmul(const MatmulCall& call, Slice slice) {
  for_format(call.format, [&]<WeightFormat Format>() { matmul_format<S, Format>(call, slice); });
}

template <class S>
void matmul_swiglu(const MatmulCall& call, Slice slice) {
  for_format(call.format, [&]<WeightFormat Format>() { matmul_swiglu_format<S, Format>(call, slice); });
}

}  // namespace penstock::kernels::cpu::detail
