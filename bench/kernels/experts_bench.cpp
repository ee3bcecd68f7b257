// Layers of experts of known models, at sizes of decode steps and of prompts. The router's matrix is the same in every
// launch, so that as many experts are read, at other places; bytes are of those that were chosen, its own not counted.
#include <algorithm>
#include <cstdio>
#include <set>
#include <stdexcept>

#include "bench/kernels/bench_support.hpp"
#include "kernels/cuda/experts.hpp"

namespace penstock::bench::gpu {
namespace {

namespace cuda = kernels::cuda;
using cuda::Bf16;
using cuda::ExpertShape;

struct ExpertModel {
  const char* name;
  ExpertShape shape;
};
constexpr ExpertModel models[] = {{"qwen3-30b-a3b", {128, 8, 2048, 768}}, {"mixtral-8x7b", {8, 2, 4096, 14336}}};

struct Run {
  ExpertShape shape;
  std::uint32_t tokens;
  DeviceBuffer x, router, choices, activated, outputs, y, gain, gained, squares;
};

Run make_run(Bench& bench, const ExpertShape& shape, std::uint32_t tokens) {
  Run run{shape, tokens, {}, {}, {}, {}, {}, {}, {}, {}, {}};
  const std::uint64_t values = std::uint64_t{tokens} * shape.hidden, count = std::uint64_t{tokens} * shape.chosen;
  for (DeviceBuffer* buffer : {&run.x, &run.y, &run.gained}) *buffer = must(DeviceBuffer::make(2 * values));
  run.router = must(DeviceBuffer::make(std::uint64_t{2} * shape.experts * shape.hidden));
  run.gain = must(DeviceBuffer::make(std::uint64_t{2} * shape.hidden));
  run.choices = must(DeviceBuffer::make(choices_bytes(shape, tokens)));
  must(run.choices.fill(0, bench.stream.get()));
  run.activated = must(DeviceBuffer::make(2 * count * shape.ffn));
  run.outputs = must(DeviceBuffer::make(2 * count * shape.hidden));
  run.squares = must(DeviceBuffer::make(std::uint64_t{4} * tokens * cuda::few_expert_squares(shape.hidden)));
  for (DeviceBuffer* buffer : {&run.x, &run.y, &run.router, &run.gain}) fill_ordinary(bench, *buffer);
  return run;
}

Result<void> multiply(const Bench& bench, const Run& run, const Bf16* weights) {
  const std::uint64_t gate_up = std::uint64_t{2} * run.shape.experts * run.shape.ffn * run.shape.hidden;
  cuda::ExpertStep step;
  step.weights = {run.router.as<Bf16>(), weights, weights + gate_up};
  step.choices = choices_in(run.choices.data(), run.shape, run.tokens);
  step.x = run.x.as<Bf16>();
  step.activated = run.activated.as<Bf16>();
  step.outputs = run.outputs.as<Bf16>();
  step.y = run.y.as<Bf16>();
  step.tokens = run.tokens;
  if (run.tokens > cuda::few_expert_tokens) {
    return run_many_experts(run.shape, step, Start::overlapped, bench.stream.get());
  }
  step.gain = run.gain.as<Bf16>();
  step.gained = run.gained.as<Bf16>();
  step.squares = run.squares.as<float>();
  return run_few_experts(run.shape, step, Start::overlapped, bench.stream.get());
}

std::size_t chosen_experts(const Bench& bench, const Run& run) {
  std::vector<std::int32_t> experts(std::size_t{run.tokens} * run.shape.chosen);
  const std::uint64_t offset = reinterpret_cast<std::uintptr_t>(choices_in(nullptr, run.shape, run.tokens).experts);
  must(run.choices.download(experts.data(), experts.size() * sizeof(std::int32_t), bench.stream.get(), offset));
  return std::set<std::int32_t>(experts.begin(), experts.end()).size();
}

void bench_model(Bench& bench, const ExpertModel& model, std::uint32_t tokens) {
  const ExpertShape& shape = model.shape;
  const Run run = make_run(bench, shape, tokens);
  const std::uint64_t expert_bytes = std::uint64_t{6} * shape.ffn * shape.hidden;
  const Walk walk(bench, expert_bytes * shape.experts);
  must(multiply(bench, run, walk.at(bench, 0)));
  must(bench.stream.wait());
  const std::size_t read = chosen_experts(bench, run);
  Row row{"experts", std::string(model.name) + " " + std::to_string(tokens), std::to_string(read) + " read", 0,
          static_cast<double>(read * expert_bytes)};
  if (tokens > cuda::few_expert_tokens) row.operations = 6.0 * tokens * shape.chosen * shape.ffn * shape.hidden;
  row.microseconds =
      time_chain(bench, walk.launches, [&](std::uint32_t i) { return multiply(bench, run, walk.at(bench, i)); });
  keep(bench, row);
}

}  // namespace

void bench_experts(Bench& bench) {
  for (const ExpertModel& model : models) {
    for (const std::uint32_t tokens : {1u, 2u, 4u, 8u, 16u, 32u, 64u, 256u, 512u, 4096u}) {
      bench_model(bench, model, tokens);
    }
  }
}

}  // namespace penstock::bench::gpu
