#include "kernels/cuda/experts.hpp"

#include <algorithm>
#include <optional>

#include "kernels/reference/experts.hpp"
#include "tests/kernel/support.hpp"

namespace penstock::kernels::cuda::test {
namespace {

std::string name_of(const ExpertShape& shape, std::uint32_t tokens) {
  return std::to_string(tokens) + " tokens, " + std::to_string(shape.chosen) + " of " + std::to_string(shape.experts) +
         " experts, " + std::to_string(shape.hidden) + " x " + std::to_string(shape.ffn);
}

/// Whole numbers over 32: sums of their products are exact in float, and often equal.
Halves whole_values(Random& random, std::size_t count, int most) {
  Halves values;
  for (std::size_t i = 0; i < count; ++i) {
    values.push_back(rounded((static_cast<double>(random.below(2 * most + 1)) - most) / 32));
  }
  return values;
}

std::vector<double> slice(const std::vector<double>& values, std::size_t first, std::size_t count) {
  return {values.begin() + static_cast<std::ptrdiff_t>(first),
          values.begin() + static_cast<std::ptrdiff_t>(first + count)};
}

/// Memory for choices, poisoned but for its counters.
class Choices {
 public:
  Choices(const ExpertShape& shape, std::uint32_t tokens, Stream stream)
      : shape_(shape), tokens_(tokens), stream_(stream), memory_(poison(shape, tokens), stream) {}
  ExpertChoices parts() const { return choices_in(memory_.data(), shape_, tokens_); }

  struct Read {
    std::vector<std::int32_t> experts;
    std::vector<float> weights, scales;
  };
  Read read(const std::string& what) const {
    std::vector<std::byte> bytes = memory_.read(what);
    const ExpertChoices at = choices_in(bytes.data(), shape_, tokens_);
    const std::size_t count = std::size_t{tokens_} * shape_.chosen;
    return {{at.experts, at.experts + count}, {at.weights, at.weights + count}, {at.scales, at.scales + tokens_}};
  }

 private:
  static std::vector<std::byte> poison(const ExpertShape& shape, std::uint32_t tokens) {
    std::vector<std::byte> bytes(choices_bytes(shape, tokens), std::byte{0xff});
    std::fill_n(choices_in(bytes.data(), shape, tokens).arrived, 2, 0u);
    return bytes;
  }

  ExpertShape shape_;
  std::uint32_t tokens_;
  Stream stream_;
  Guarded<std::byte> memory_;
};

class ExpertsTest : public GpuTest {
 protected:
  /// The router alone and, of few tokens, the one that has the experts with it; these have weights of zero here.
  void check_routing(const ExpertShape& shape, std::uint32_t tokens, ExpertScaling scaling, bool with_norm) {
    Random random(shape.experts * 31 + shape.hidden + tokens);
    const Halves x = whole_values(random, std::size_t{tokens} * shape.hidden, 3);
    const Halves weights = whole_values(random, std::size_t{shape.experts} * shape.hidden, 4);
    constexpr std::uint32_t parts = 5;
    constexpr float epsilon = 1e-5f;
    std::vector<float> squares;
    for (std::uint32_t i = 0; i < tokens * parts; ++i) squares.push_back(static_cast<float>(random.uniform()) + 0.1f);
    const Guarded<Bf16> on_x(x, stream_.get()), on_weights(weights, stream_.get()), y(Halves(x.size()), stream_.get());
    const Guarded<Bf16> zeros(Halves(std::size_t{2} * shape.experts * shape.ffn * shape.hidden), stream_.get());
    const Guarded<Bf16> activated(std::size_t{tokens} * shape.chosen * shape.ffn, stream_.get());
    const Guarded<float> on_squares(squares, stream_.get());
    const auto logits = reference::matmul(doubles(weights), doubles(x), shape.experts, shape.hidden, tokens);
    std::vector<double> scales(tokens, 1.0);
    for (std::uint32_t t = 0; with_norm && t < tokens; ++t) {
      double sum = 0;
      for (std::uint32_t i = 0; i < parts; ++i) sum += squares[t * parts + i];
      scales[t] = 1 / std::sqrt(sum / shape.hidden + epsilon);
    }
    for (const bool is_alone : {true, false}) {
      if (!is_alone && tokens > few_expert_tokens) continue;
      const std::string what = name_of(shape, tokens) + (is_alone ? ", alone" : "");
      const Choices choices(shape, tokens, stream_.get());
      ExpertStep step;
      step.x = on_x.data();
      step.weights = {on_weights.data(), zeros.data(), zeros.data()};
      step.tokens = tokens;
      step.scaling = scaling;
      step.choices = choices.parts();
      step.activated = activated.data();
      step.y = y.data();
      step.norm_squares = with_norm ? on_squares.data() : nullptr;
      step.norm_parts = with_norm ? parts : 0;
      step.norm_epsilon = epsilon;
      must(is_alone ? route_experts(shape, step, Start::ordered, stream_.get())
                    : run_few_experts(shape, step, Start::ordered, stream_.get()));
      wait();
      expect_choices(shape, choices.read(what), logits, scales, scaling, what);
    }
  }
  static void expect_choices(const ExpertShape& shape, const Choices::Read& read, const std::vector<double>& logits,
                             const std::vector<double>& scales, ExpertScaling scaling, const std::string& what) {
    for (std::size_t t = 0; t < scales.size(); ++t) {
      EXPECT_NEAR(read.scales[t], scales[t], 1e-5 * scales[t]) << what;
      auto row = slice(logits, t * shape.experts, shape.experts);
      for (double& logit : row) logit *= scales[t];
      const auto expected = reference::route(
          row, shape.chosen,
          scaling == ExpertScaling::chosen ? reference::RoutingSum::chosen : reference::RoutingSum::all);
      for (std::uint32_t rank = 0; rank < shape.chosen; ++rank) {
        const std::size_t place = t * shape.chosen + rank;
        ASSERT_EQ(read.experts[place], static_cast<std::int32_t>(expected.experts[rank])) << what << ", token " << t;
        ASSERT_NEAR(read.weights[place], expected.weights[rank], 1e-4 * expected.weights[rank] + 1e-30)
            << what << ", token " << t;
      }
    }
  }

  struct Model {
    ExpertShape shape;
    std::vector<double> gate_up, down, absolute_down;
    Guarded<Bf16> on_router, on_gate_up, on_down;
    Model(const ExpertShape& s, const Halves& router, const Halves& all_gate_up, const Halves& all_down, Stream stream)
        : shape(s),
          gate_up(doubles(all_gate_up)),
          down(doubles(all_down)),
          absolute_down(absolute(down)),
          on_router(router, stream),
          on_gate_up(all_gate_up, stream),
          on_down(all_down, stream) {}
  };
  Model make_model(const ExpertShape& s, Random& random) {
    const std::size_t values = std::size_t{s.experts} * s.ffn * s.hidden;
    const Halves router = random_values(random, std::size_t{s.experts} * s.hidden);
    const Halves gate_up = random_values(random, 2 * values, 0.2), down = random_values(random, values, 0.2);
    return {s, router, gate_up, down, stream_.get()};
  }
  struct Result {
    std::vector<Bf16> y, gained;
    std::vector<float> squares;
    Choices::Read choices;
  };
  enum class Path { few, few_with_gain, many };

  /// `residual` and, with a gain, `gain` have hidden values more than they need to be found wrong.
  Result run(const Model& model, const Halves& x, const Halves& residual, const Halves& gain, Path path,
             const std::string& what) {
    const ExpertShape& shape = model.shape;
    const auto tokens = static_cast<std::uint32_t>(x.size() / shape.hidden);
    const std::size_t choices_count = std::size_t{tokens} * shape.chosen;
    const Guarded<Bf16> on_x(x, stream_.get()), y(residual, stream_.get()), on_gain(gain, stream_.get());
    const Guarded<Bf16> activated(choices_count * shape.ffn, stream_.get());
    const Guarded<Bf16> outputs(choices_count * shape.hidden, stream_.get());
    const Guarded<Bf16> gained(x.size(), stream_.get());
    const Guarded<float> squares(std::size_t{tokens} * few_expert_squares(shape.hidden), stream_.get());
    const Choices choices(shape, tokens, stream_.get());
    ExpertStep step;
    step.weights = {model.on_router.data(), model.on_gate_up.data(), model.on_down.data()};
    step.choices = choices.parts();
    step.x = on_x.data();
    step.activated = activated.data();
    step.y = y.data();
    step.tokens = tokens;
    const bool has_gain = path == Path::few_with_gain;
    if (has_gain) {
      step.gain = on_gain.data();
      step.gained = gained.data();
      step.squares = squares.data();
    }
    if (path == Path::many) {
      step.outputs = outputs.data();
      must(run_many_experts(shape, step, Start::overlapped, stream_.get()));
    } else {
      must(run_few_experts(shape, step, Start::overlapped, stream_.get()));
    }
    wait();
    activated.read(what);
    outputs.read(what);
    return {y.read(what), gained.read(what), squares.read(what), choices.read(what)};
  }

  /// What must be added for the experts that were chosen; what limits how far it may be off.
  struct Expected {
    std::vector<double> sums, products, outputs;  // of absolute products and outputs
  };
  static Expected expected_outputs(const Model& model, const Halves& x, const Choices::Read& choices) {
    const ExpertShape& s = model.shape;
    const std::size_t values = std::size_t{s.ffn} * s.hidden;
    Expected expected;
    for (auto* sums : {&expected.sums, &expected.products, &expected.outputs}) sums->resize(x.size());
    for (std::size_t i = 0; i < choices.experts.size(); ++i) {
      const std::size_t first = i / s.chosen * s.hidden;
      const auto expert = static_cast<std::size_t>(choices.experts[i]);
      const auto row = doubles(std::span(x).subspan(first, s.hidden));
      const auto gate_up = slice(model.gate_up, expert * 2 * values, 2 * values);
      const auto down = slice(model.down, expert * values, values);
      auto activated = reference::expert_activation(gate_up, row, s.ffn);
      for (double& value : activated) value = value_of(rounded(value));
      const auto output = reference::matmul(down, activated, s.hidden, s.ffn, 1);
      const auto products = reference::matmul(slice(model.absolute_down, expert * values, values), absolute(activated),
                                              s.hidden, s.ffn, 1);
      for (std::size_t j = 0; j < s.hidden; ++j) {
        expected.sums[first + j] += choices.weights[i] * output[j];
        expected.products[first + j] += choices.weights[i] * products[j];
        expected.outputs[first + j] += choices.weights[i] * std::abs(output[j]);
      }
    }
    return expected;
  }
  static void expect_outputs(const Expected& expected, const Halves& residual, const Result& result, Path path,
                             const std::string& what) {
    std::vector<double> values, bounds;
    for (std::size_t i = 0; i < residual.size(); ++i) {
      values.push_back(value_of(residual[i]) + expected.sums[i]);
      const double rounded_values = std::abs(values[i]) + (path == Path::many ? expected.outputs[i] : 0);
      bounds.push_back(1.01 * bf16_step * rounded_values + 1e-3 * expected.products[i] + 1e-5);
    }
    expect_near(doubles(result.y), values, bounds, what);
  }

  void check(const ExpertShape& shape, const std::vector<std::uint32_t>& tokens_of_runs) {
    Random random(shape.experts * 7 + shape.hidden);
    const Model model = make_model(shape, random);
    for (const std::uint32_t tokens : tokens_of_runs) {
      const Halves x = random_values(random, std::size_t{tokens} * shape.hidden);
      const Halves residual = random_values(random, x.size(), 3), gain = random_values(random, shape.hidden);
      std::optional<Expected> expected;
      for (const Path path : {Path::many, Path::few, Path::few_with_gain}) {
        if (path != Path::many && tokens > few_expert_tokens) continue;
        const std::string what = name_of(shape, tokens) + ", path " + std::to_string(static_cast<int>(path));
        const Result result = run(model, x, residual, gain, path, what);
        if (!expected) expected = expected_outputs(model, x, result.choices);
        expect_outputs(*expected, residual, result, path, what);
        if (path == Path::few_with_gain) expect_gained(result, gain, shape, what);
        if (HasFailure()) return;
        const Result again = run(model, x, residual, gain, path, what);
        EXPECT_EQ(again.y, result.y) << what;
      }
    }
  }
  static void expect_gained(const Result& result, const Halves& gain, const ExpertShape& shape,
                            const std::string& what) {
    const std::size_t parts = few_expert_squares(shape.hidden);
    std::vector<double> gained, squares(result.squares.size()), bounds;
    for (std::size_t i = 0; i < result.y.size(); ++i) {
      const double value = value_of(result.y[i]);
      gained.push_back(value * value_of(gain[i % shape.hidden]));
      bounds.push_back(1.01 * bf16_step * std::abs(gained.back()) + 1e-30);
      squares[i / shape.hidden * parts + i % shape.hidden / 16] += value * value;
    }
    expect_near(doubles(result.gained), gained, bounds, what + ", gained");
    const std::vector<double> actual(result.squares.begin(), result.squares.end());
    expect_close(actual, squares, 1e-5, 1e-6, what + ", squares");
  }
};

TEST_F(ExpertsTest, TheRouterChoosesAsTheReferenceDoes) {
  for (const std::uint32_t tokens : {1u, 2u, 7u, 8u, 9u, 16u, 17u, 63u, 64u, 65u, 200u}) {
    check_routing({5, 2, 56, 8}, tokens, ExpertScaling::chosen, false);
    check_routing({17, 4, 8, 8}, tokens, ExpertScaling::all, true);
    check_routing({128, 8, 2048, 8}, tokens, ExpertScaling::chosen, true);
    check_routing({200, 16, 2504, 8}, tokens, ExpertScaling::chosen, false);
    check_routing({256, 1, 1000, 8}, tokens, ExpertScaling::all, false);
    if (HasFailure()) return;
  }
  check_routing({1, 1, 64, 8}, 3, ExpertScaling::chosen, false);
  check_routing({4, 4, 4096, 8}, 64, ExpertScaling::chosen, true);
}

TEST_F(ExpertsTest, MatchTheReferenceForOddSizes) {
  check({5, 2, 56, 24}, {1, 3, 8, 9, 33, 64, 65, 400});
  check({3, 3, 8, 8}, {1, 2, 64, 100});
  check({17, 4, 200, 136}, {1, 5, 16, 64, 130});
  check({12, 8, 1032, 520}, {1, 4, 17, 67});
  check({4, 2, 264, 2056}, {1, 2, 30, 66});
  check({1, 1, 136, 64}, {1, 64, 257});
  check({24, 8, 2048, 768}, {1, 3});
}

// What one token holds never reaches another, alone and among others it gives the same bits.
TEST_F(ExpertsTest, TokensAreApart) {
  const ExpertShape shape{12, 4, 264, 136};
  Random random(3);
  const Model model = make_model(shape, random);
  constexpr std::uint32_t tokens = 40, dirty = 7;
  Halves x = random_values(random, std::size_t{tokens} * shape.hidden);
  const Halves residual = random_values(random, x.size());
  for (const Path path : {Path::few, Path::many}) {
    const auto clean = run(model, x, residual, {}, path, "all");
    const auto row_of = [&](const std::vector<Bf16>& values, std::uint32_t t) {
      return Halves(values.begin() + t * shape.hidden, values.begin() + (t + 1) * shape.hidden);
    };
    for (const std::uint32_t t : {0u, 13u, 39u}) {
      const auto alone = run(model, row_of(x, t), row_of(residual, t), {}, path, "alone");
      EXPECT_EQ(alone.y, row_of(clean.y, t)) << "token " << t;
    }
    Halves spoilt = x;
    for (std::uint32_t i = 0; i < shape.hidden; ++i) spoilt[dirty * shape.hidden + i] = 0x7fc0;
    const auto result = run(model, spoilt, residual, {}, path, "one of NaN");
    for (std::uint32_t t = 0; t < tokens; ++t) {
      if (t == dirty) continue;
      EXPECT_EQ(row_of(result.y, t), row_of(clean.y, t)) << "token " << t;
    }
    for (const Bf16 value : row_of(result.y, dirty)) EXPECT_TRUE(std::isnan(value_of(value)));
  }
}

// The last of 256 experts begins beyond 2^31 values.
TEST_F(ExpertsTest, ReadBeyondTwoToTheThirtyOneValues) {
  const ExpertShape shape{256, 1, 2048, 2304}, one{1, 1, 2048, 2304};
  Random random(5);
  const std::size_t values = std::size_t{shape.ffn} * shape.hidden;
  const Halves gate_up = random_values(random, 2 * values, 0.05), down = random_values(random, values, 0.05);
  const Halves x = random_values(random, std::size_t{70} * shape.hidden);
  auto on_gate_up = must(DeviceBuffer::make(shape.experts * 2 * values * 2));
  auto on_down = must(DeviceBuffer::make(shape.experts * values * 2));
  for (DeviceBuffer* buffer : {&on_gate_up, &on_down}) must(buffer->fill(0, stream_.get()));
  must(on_gate_up.upload(gate_up.data(), gate_up.size() * 2, stream_.get(), on_gate_up.bytes() - gate_up.size() * 2));
  must(on_down.upload(down.data(), down.size() * 2, stream_.get(), on_down.bytes() - down.size() * 2));
  for (const std::uint32_t tokens : {3u, 70u}) {
    std::vector<Halves> results;
    // All of one expert, then the same weights as the last of many.
    for (const bool among_others : {false, true}) {
      const ExpertShape& s = among_others ? shape : one;
      Halves router(std::size_t{s.experts} * s.hidden);
      const Guarded<Bf16> on_x(x, stream_.get()), y(Halves(tokens * s.hidden), stream_.get());
      const Guarded<Bf16> activated(std::size_t{tokens} * s.ffn, stream_.get());
      const Guarded<Bf16> outputs(std::size_t{tokens} * s.hidden, stream_.get());
      // Logits of NaN come last, so that only the last expert is left.
      std::fill(router.begin(), router.end() - s.hidden, Bf16{0x7fc0});
      const Guarded<Bf16> on_router(router, stream_.get());
      const Choices choices(s, tokens, stream_.get());
      ExpertStep step;
      const std::size_t expert = among_others ? 0 : shape.experts - 1;
      step.weights = {on_router.data(), on_gate_up.as<Bf16>() + expert * 2 * values,
                      on_down.as<Bf16>() + expert * values};
      step.choices = choices.parts();
      step.x = on_x.data();
      step.activated = activated.data();
      step.outputs = outputs.data();
      step.y = y.data();
      step.tokens = tokens;
      must(tokens <= few_expert_tokens ? run_few_experts(s, step, Start::ordered, stream_.get())
                                       : run_many_experts(s, step, Start::ordered, stream_.get()));
      wait();
      const std::vector<std::int32_t> expected(tokens, static_cast<std::int32_t>(s.experts) - 1);
      EXPECT_EQ(choices.read("choices").experts, expected);
      results.push_back(y.read());
    }
    EXPECT_NE(results[0], Halves(tokens * shape.hidden));
    EXPECT_EQ(results[1], results[0]);
  }
}

TEST(Experts, RefuseShapesByName) {
  alignas(16) Bf16 value[8] = {};
  std::int32_t experts[1] = {};
  const auto routed = [&](const ExpertShape& shape, std::uint32_t parts = 0) {
    ExpertStep routing;
    routing.x = routing.weights.router = value;
    routing.choices.experts = experts;
    routing.tokens = 1;
    routing.norm_parts = parts;
    const auto started = route_experts(shape, routing, Start::ordered, nullptr);
    return started ? std::string() : started.error().message;
  };
  EXPECT_NE(routed({257, 1, 8, 8}).find("experts"), std::string::npos);
  EXPECT_NE(routed({4, 5, 8, 8}).find("chosen"), std::string::npos);
  EXPECT_NE(routed({32, 17, 8, 8}).find("chosen"), std::string::npos);
  EXPECT_NE(routed({4, 2, 12, 8}).find("hidden"), std::string::npos);
  EXPECT_NE(routed({4, 2, 8, 8}, 3).find("norm_parts"), std::string::npos);
  ExpertStep step;
  step.weights = {value, value, value};
  step.choices.experts = experts;
  step.x = value;
  step.activated = step.y = value;
  const auto few = [&](const ExpertShape& shape, std::uint32_t tokens) {
    step.tokens = tokens;
    const auto started = run_few_experts(shape, step, Start::ordered, nullptr);
    return started ? std::string() : started.error().message;
  };
  EXPECT_NE(few({4, 2, 8, 12}, 1).find("ffn"), std::string::npos);
  EXPECT_NE(few({4, 2, 8, 8}, 0).find("tokens"), std::string::npos);
  EXPECT_NE(few({4, 2, 8, 8}, 65).find("tokens"), std::string::npos);
  step.gain = value;
  EXPECT_NE(few({4, 2, 8, 8}, 1).find("gain"), std::string::npos);
  const auto many = run_many_experts({4, 2, 8, 8}, step, Start::ordered, nullptr);
  ASSERT_FALSE(many);
  EXPECT_NE(many.error().message.find("outputs"), std::string::npos);
}

}  // namespace
}  // namespace penstock::kernels::cuda::test
