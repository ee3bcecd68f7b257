// One shape of load on an Executor, driven by hand as the engine would: a prompt in chunks, or decode steps of a batch.
// Tokens are arbitrary but fixed; decode steps draw greedily, so sampling is part of the time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.hpp"
#include "worker/engine/executor.hpp"

namespace penstock::bench {

enum class ShapeKind : std::uint8_t { decode, prefill };

struct Shape {
  ShapeKind kind = ShapeKind::decode;
  std::uint32_t size = 1;  // decode: sequences; prefill: prompt tokens

  std::string name() const;
};

/// "decode-8", "prefill-512". Nothing for other texts and sizes of zero.
std::optional<Shape> parse_shape(std::string_view text);

constexpr std::uint32_t decode_context = 64;  // tokens before the first timed step
constexpr std::uint32_t decode_steps = 16;    // timed

/// Tokens of one sequence and sequences that a shape needs.
std::uint32_t tokens_of(const Shape& shape);
std::uint32_t sequences_of(const Shape& shape);

/// Runs the shape once and gives the seconds: of the median decode step, or of the whole prefill.
Result<double> run_shape(worker::Executor& executor, const Shape& shape);

}  // namespace penstock::bench
