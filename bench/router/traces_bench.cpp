// Replays a request trace (JSON lines: timestamp ms, input_length, output_length, hash_ids of 512 tokens each) through
// the Fleet with simulated workers, and prints block hit rate over the reachable one and load imbalance, each as a
// ratio to its limit. Usage: penstock_traces_bench TRACE [policy] [workers] [KEY=VALUE ...]; keys are policy weights.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <string>
#include <unordered_set>
#include <vector>

#include "router/core/fleet.hpp"

namespace penstock::router {
namespace {

constexpr std::uint32_t block_tokens = 512;
constexpr double prefill_tokens_per_second = 20000;
constexpr double decode_seconds_per_token = 0.02;
constexpr Duration report_interval = std::chrono::milliseconds(100);

struct Row {
  TimePoint at;
  std::uint32_t input = 0, output = 0;
  std::vector<BlockHash> blocks;  // full and partial ones, as the trace numbers them
};

double field(const std::string& line, const char* name) {
  const std::size_t at = line.find("\"" + std::string(name) + "\":");
  return at == std::string::npos ? 0 : std::strtod(line.c_str() + at + std::string(name).size() + 3, nullptr);
}

std::vector<Row> read_trace(const char* path) {
  std::ifstream file(path);
  std::vector<Row> rows;
  for (std::string line; std::getline(file, line);) {
    Row row;
    row.at =
        TimePoint{std::chrono::hours(1)} + std::chrono::microseconds(static_cast<long>(field(line, "timestamp") * 1e3));
    row.input = static_cast<std::uint32_t>(field(line, "input_length"));
    row.output = static_cast<std::uint32_t>(field(line, "output_length"));
    const char* at = std::strchr(line.c_str() + line.find("hash_ids"), '[') + 1;
    for (char* end = nullptr;; at = end + 1) {
      const std::uint64_t id = std::strtoull(at, &end, 10);
      if (end == at) break;
      row.blocks.push_back({id + 1, id});
      if (*end != ',') break;
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

/// Requests with equal times come in one burst in the real traces; they are spread up to the next time.
void spread(std::vector<Row>& rows) {
  for (std::size_t first = 0; first < rows.size();) {
    std::size_t end = first;
    while (end < rows.size() && rows[end].at == rows[first].at) ++end;
    if (end == rows.size()) break;
    const Duration step = (rows[end].at - rows[first].at) / static_cast<long>(end - first);
    for (std::size_t i = first; i < end; ++i) rows[i].at = rows[first].at + step * static_cast<long>(i - first);
    first = end;
  }
}

struct Running {
  DispatchId dispatch = 0;
  const Row* row = nullptr;
  double uncached = 0;  // still to prefill
  TimePoint next_token{};
  std::uint32_t produced = 0;
};

/// Prefill one after the other, decode all at once; infinite cache.
struct SimulatedWorker {
  WorkerRef ref;
  std::unordered_set<std::uint64_t> cache;
  std::deque<Running> prefill;
  std::vector<Running> decode;
  std::uint64_t sequence = 0, seen = 0, hits = 0, prompt_tokens = 0, hit_tokens = 0;
  double work = 0;
  TimePoint busy_until{}, report_at{};

  void take(DispatchId dispatch, const Row& row, TimePoint now) {
    std::size_t hit = 0;
    while (hit < row.blocks.size() && cache.contains(row.blocks[hit].low)) ++hit;
    hits += hit;
    const double cached = std::min<double>(static_cast<double>(hit) * block_tokens, row.input);
    work += row.input - cached + row.output;
    ++seen;
    if (prefill.empty()) busy_until = now;
    prefill.push_back({dispatch, &row, row.input - cached, {}, 0});
    for (const BlockHash& block : row.blocks) cache.insert(block.low);  // as of now: the run before it computes them
  }

  void advance(Fleet& fleet, TimePoint now) {
    while (!prefill.empty()) {
      Running& head = prefill.front();
      const auto needs = std::chrono::duration_cast<Duration>(
          std::chrono::duration<double>(head.uncached / prefill_tokens_per_second));
      if (busy_until + needs > now) {
        head.uncached -= std::chrono::duration<double>(now - busy_until).count() * prefill_tokens_per_second;
        busy_until = now;
        break;
      }
      busy_until += needs;
      fleet.on_cache_events(ref, {1, ++sequence, {protocol::BlockStored{0, {}, head.row->blocks}}}, now);
      fleet.on_first_token(head.dispatch, std::nullopt);
      head.next_token = busy_until;
      decode.push_back(head);
      prefill.pop_front();
    }
    for (std::size_t i = 0; i < decode.size();) {
      Running& run = decode[i];
      const double elapsed = std::chrono::duration<double>(now - run.next_token).count();
      const auto due = std::min(run.row->output, static_cast<std::uint32_t>(elapsed / decode_seconds_per_token));
      if (due > run.produced) fleet.on_tokens(run.dispatch, due - run.produced);
      run.produced = due;
      if (run.produced < run.row->output) {
        ++i;
        continue;
      }
      fleet.on_finished(run.dispatch);
      run = decode.back();
      decode.pop_back();
    }
    if (now < report_at) return;
    report_at = now + report_interval;
    protocol::Load load;
    load.running = static_cast<std::uint32_t>(decode.size());
    load.waiting = static_cast<std::uint32_t>(prefill.size());
    double waiting = 0;
    for (const Running& run : prefill) waiting += run.uncached;
    load.waiting_prefill_tokens = static_cast<std::uint64_t>(waiting);
    load.kv_blocks_total = load.kv_blocks_free = 1u << 20;
    load.requests_seen = seen;
    fleet.on_load(ref, load, now);
  }
};

struct Result {
  double hit_share = 0, imbalance = 0;
};

Result replay(const std::vector<Row>& rows, FleetSettings settings, std::size_t count, std::uint64_t seed) {
  settings.block_tokens = block_tokens;
  Fleet fleet(settings, seed);
  std::vector<SimulatedWorker> workers(count);
  TimePoint now = rows.front().at;
  for (std::size_t i = 0; i < count; ++i) {
    protocol::Welcome welcome;
    welcome.instance = {1, i + 1};
    welcome.epoch = 1;
    welcome.block_tokens = block_tokens;
    welcome.kv_blocks = 1u << 20;
    welcome.sequences_max = 4096;
    welcome.card.context_tokens = 1u << 20;
    workers[i].ref = fleet.on_welcome(welcome, "worker", {}, now).worker;
    fleet.on_snapshot(workers[i].ref, {1, 0, 0, true, {}}, now);
    workers[i].report_at = now;
    workers[i].advance(fleet, now);
  }
  std::unordered_set<std::uint64_t> all;
  std::uint64_t reachable = 0;
  for (const Row& row : rows) {
    while (now + std::chrono::milliseconds(20) < row.at) {
      now += std::chrono::milliseconds(20);
      for (SimulatedWorker& worker : workers) worker.advance(fleet, now);
      fleet.tick(now);
    }
    now = std::max(now, row.at);
    for (const BlockHash& block : row.blocks) reachable += all.insert(block.low).second ? 0 : 1;
    PlacementRequest request;
    request.prompt_tokens = row.input;
    request.blocks = row.blocks;
    request.output_tokens_max = 4096;
    const Placement placement = fleet.choose(request, now);
    if (placement.outcome != Outcome::placed) {
      std::fprintf(stderr, "not placed: %s\n", std::string(placement.why).c_str());
      std::exit(1);
    }
    const DispatchId dispatch = fleet.on_dispatched(request, placement, now);
    for (SimulatedWorker& worker : workers) {
      if (worker.ref == placement.worker) worker.take(dispatch, row, now);
    }
  }
  double hits = 0, most = 0, sum = 0;
  for (const SimulatedWorker& worker : workers) {
    hits += static_cast<double>(worker.hits);
    sum += worker.work;
    most = std::max(most, worker.work);
  }
  return {hits / static_cast<double>(std::max<std::uint64_t>(reachable, 1)), most / sum * static_cast<double>(count)};
}

bool set_weight(PolicySettings& policy, const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos) return false;
  const std::string key = text.substr(0, equals);
  const float value = std::strtof(text.c_str() + equals + 1, nullptr);
  if (key == "uncached")
    policy.uncached_weight = value;
  else if (key == "home")
    policy.home_weight = value;
  else if (key == "wait")
    policy.wait_weight = value;
  else if (key == "decode")
    policy.decode_weight = value;
  else if (key == "recent")
    policy.recent_weight = value;
  else if (key == "recent_prompt")
    policy.recent_prompt_weight = value;
  else if (key == "half_life")
    policy.recent_half_life = std::chrono::milliseconds(static_cast<long>(value * 1000));
  else if (key == "decay")
    policy.credit_decay = value;
  else if (key == "gate_relative")
    policy.gate_relative = value;
  else if (key == "gate_absolute")
    policy.gate_absolute_tokens = value;
  else
    return false;
  return true;
}

}  // namespace
}  // namespace penstock::router

int main(int count, char** arguments) {
  using namespace penstock::router;
  if (count < 2) {
    std::puts("usage: penstock_traces_bench TRACE [policy] [workers] [KEY=VALUE ...]; no trace, nothing measured");
    return 0;
  }
  FleetSettings settings;
  if (count > 2) {
    const auto kind = parse_policy(arguments[2]);
    if (!kind) return std::puts("unknown policy"), 2;
    settings.policy.kind = *kind;
  }
  const std::size_t workers = count > 3 ? std::strtoul(arguments[3], nullptr, 10) : 8;
  for (int i = 4; i < count; ++i) {
    if (!set_weight(settings.policy, arguments[i])) return std::puts("unknown key"), 2;
  }
  std::vector<Row> rows = read_trace(arguments[1]);
  if (rows.empty()) return std::puts("the trace is empty or cannot be read"), 2;
  spread(rows);
  const bool is_tool_agent = std::string(arguments[1]).find("toolagent") != std::string::npos;
  const double hit_least = is_tool_agent ? 0.93 : 0.95, imbalance_most = is_tool_agent ? 1.20 : 1.05;
  const Result result = replay(rows, settings, workers, 1);
  std::printf("%s %s x%zu: hit %.4f of reachable (%.3fx of %.2f), imbalance %.3f (%.3fx of %.2f)\n", arguments[1],
              std::string(to_string(settings.policy.kind)).c_str(), workers, result.hit_share,
              result.hit_share / hit_least, hit_least, result.imbalance, result.imbalance / imbalance_most,
              imbalance_most);
  return 0;
}
