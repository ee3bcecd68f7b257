#include "bench/engine/loop_run.hpp"
#include "bench/engine/quiet_sink.hpp"

#include <algorithm>
#include <future>
#include <vector>

#include "worker/engine/engine.hpp"

namespace penstock::bench {
namespace {

using namespace worker;

constexpr std::uint32_t warm_steps = 16;

/// Takes no more steps at once than it is told.
class Limited final : public Executor {
 public:
  Limited(Executor& whole, std::uint32_t steps) : whole_(whole), steps_(steps) {}
  const ExecutorLimits& limits() const override { return whole_.limits(); }
  KvPoolView kv_pool() override { return whole_.kv_pool(); }
  void launch(const StepBatch& batch) override { whole_.launch(batch); }
  Result<StepResult> collect() override { return whole_.collect(); }
  std::uint32_t steps_in_flight_max() const override { return std::min(steps_, whole_.steps_in_flight_max()); }

 private:
  Executor& whole_;
  std::uint32_t steps_;
};

class Listener final : public QuietSink, public EngineProbe {
 public:
  explicit Listener(std::uint32_t sequences) : sequences_(sequences) {}
  using QuietSink::on_step;
  void on_drained() override { ended_.set_value(); }
  void on_broken(const Error& error) override {
    QuietSink::on_broken(error);
    ended_.set_value();
  }
  void on_step(const StepMeasure& measure) override {
    if (measure.prefill_tokens == 0 && measure.decode_tokens == sequences_) measures_.push_back(measure);
  }
  void wait() { ended_.get_future().wait(); }
  const std::vector<StepMeasure>& measures() const { return measures_; }

 private:
  std::uint32_t sequences_;
  std::vector<StepMeasure> measures_;
  std::promise<void> ended_;
};

protocol::Generate request_of(std::uint64_t id, const LoopShape& shape, std::uint32_t vocabulary) {
  protocol::Generate generate;
  generate.spec.request = {1, id};
  for (std::uint64_t i = 0; i < shape.prompt_tokens; ++i) {
    generate.spec.prompt.push_back(static_cast<TokenId>((1000 + 7919 * i + 104729 * id) % vocabulary));
  }
  generate.spec.choices.push_back({0, {}});
  generate.spec.sampling.temperature = shape.temperature;
  generate.spec.sampling.top_p = shape.temperature > 0 ? 0.95f : 1.0f;
  // The first prompts decode while the last ones are computed.
  generate.spec.sampling.tokens_max = shape.steps + warm_steps + 2 + shape.sequences * shape.prompt_tokens / 256;
  generate.spec.sampling.ignore_eos = true;
  return generate;
}

template <class Field>
double median(const std::vector<StepMeasure>& measures, Field field) {
  std::vector<double> values;
  for (std::size_t i = warm_steps; i < measures.size(); ++i) {
    values.push_back(std::chrono::duration<double>(field(measures[i])).count());
  }
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

LoopFigures run_loop(Executor& executor, const LoopShape& shape) {
  Limited limited(executor, shape.steps_in_flight);
  Listener listener(shape.sequences);
  SteadyClock clock;
  EngineConfig config;
  config.sequences_max = shape.sequences;
  config.prefix_cache = false;
  Engine engine(config, limited, nullptr, listener, clock, &listener);
  for (std::uint32_t i = 0; i < shape.sequences; ++i) {
    engine.post(request_of(i, shape, executor.limits().vocabulary_size));
  }
  engine.post(DrainEngine{});
  engine.start();
  listener.wait();
  engine.stop();
  const auto& measures = listener.measures();
  return {median(measures, [](const StepMeasure& m) { return m.execute; }),
          median(measures, [](const StepMeasure& m) { return m.device.value_or(Duration::zero()); }),
          median(measures, [](const StepMeasure& m) { return m.plan; }),
          median(measures, [](const StepMeasure& m) { return m.apply; }), static_cast<std::uint32_t>(measures.size())};
}

}  // namespace penstock::bench
