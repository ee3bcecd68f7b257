#include "router/app/gauges.hpp"

#include <algorithm>

#include "common/json/writer.hpp"

namespace penstock::router {
namespace {

struct FleetGauge {
  const char* name;
  const char* help;
  std::uint64_t FleetStats::* member;
};
// Totals come from the fleet as they are, so they are gauges here that only grow.
constexpr FleetGauge fleet_gauges[] = {
    {"index_bytes", "Memory of the prefix index.", &FleetStats::index_bytes},
    {"index_blocks", "Distinct blocks in the prefix index.", &FleetStats::index_blocks},
    {"index_predicted_blocks", "Blocks entered at dispatch and not yet confirmed.", &FleetStats::predicted_blocks},
    {"index_blocks_evicted", "Blocks dropped by the byte cap so far.", &FleetStats::index_blocks_evicted},
    {"index_workers_unsynced", "Workers whose snapshot is awaited.", &FleetStats::workers_unsynced},
    {"index_events_applied", "Blocks stored or removed by events so far.", &FleetStats::events_applied},
    {"index_gaps", "Gaps in event streams so far.", &FleetStats::gaps},
    {"index_snapshots", "Snapshots spliced in so far.", &FleetStats::snapshots},
    {"placements_whole", "Requests placed on one worker so far.", &FleetStats::placed_whole},
    {"placements_split", "Requests placed on two workers so far.", &FleetStats::placed_split},
    {"placed_cached_tokens", "Prompt tokens that the index found on the chosen worker so far.",
     &FleetStats::cached_tokens},
    {"placed_cached_tokens_lost", "Longest match minus the chosen worker's, so far.", &FleetStats::cached_tokens_lost},
    {"placed_prompt_tokens", "Prompt tokens of placements so far.", &FleetStats::prompt_tokens},
    {"cached_tokens_reported", "Cache hits that workers reported so far.", &FleetStats::cached_tokens_reported},
    {"cached_tokens_promised", "What the index had said for the same requests.", &FleetStats::cached_tokens_promised},
    {"fleet_requests_in_flight", "Requests at workers.", &FleetStats::requests_in_flight},
};

double seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

void add_age_gauges(metrics::Registry& metrics, ModelRegistry& registry, const Clock& clock) {
  const auto staleness =
      metrics.gauge("penstock_router_index_staleness_seconds",
                    "How long the index has been behind some worker's cache; 0 if it is behind none.");
  const auto load_age =
      metrics.gauge("penstock_router_load_report_age_seconds", "Age of the oldest last load report of a worker.");
  metrics.on_expose([staleness, load_age, &registry, &clock] {
    Duration stalest{}, oldest{};
    for (const auto& [name, model] : registry.models()) {
      for (const auto& view : model->fleet.workers(clock.now())) {
        stalest = std::max(stalest, view.index_stale_for);
        oldest = std::max(oldest, view.load_age);
      }
    }
    staleness.set(seconds(stalest));
    load_age.set(seconds(oldest));
  });
}

}  // namespace

void add_fleet_gauges(metrics::Registry& metrics, ModelRegistry& registry, const Clock& clock) {
  add_age_gauges(metrics, registry, clock);
  std::vector<metrics::Gauge> gauges;
  for (const auto& one : fleet_gauges) {
    gauges.push_back(metrics.gauge(std::string("penstock_router_") + one.name, one.help));
  }
  const auto hit_bytes =
      metrics.gauge("penstock_router_token_cache_hit_bytes", "Text that needed no tokenising so far.");
  const auto miss_bytes = metrics.gauge("penstock_router_token_cache_miss_bytes", "Text that was tokenised so far.");
  const auto held = metrics.gauge("penstock_router_token_cache_bytes", "Memory of the token cache.");
  metrics.on_expose([gauges, hit_bytes, miss_bytes, held, &registry] {
    for (std::size_t i = 0; i < gauges.size(); ++i) {
      double sum = 0;
      for (const auto& [name, model] : registry.models()) {
        sum += static_cast<double>(model->fleet.stats().*fleet_gauges[i].member);
      }
      gauges[i].set(sum);
    }
    double hits = 0, misses = 0, bytes = 0;
    for (const auto& [name, model] : registry.models()) {
      if (!model->text) continue;
      const auto stats = model->text->token_cache->stats();
      hits += static_cast<double>(stats.hit_bytes);
      misses += static_cast<double>(stats.miss_bytes);
      bytes += static_cast<double>(stats.bytes);
    }
    hit_bytes.set(hits);
    miss_bytes.set(misses);
    held.set(bytes);
  });
}

std::string workers_json(const ModelRegistry& registry, TimePoint now) {
  std::string out;
  json::Writer writer(out);
  writer.begin_object();
  writer.key("workers");
  writer.begin_array();
  for (const auto& [name, model] : registry.models()) {
    for (const auto& view : model->fleet.workers(now)) {
      writer.begin_object();
      writer.field("model", name);
      writer.field("worker", view.info.address);
      writer.field("instance", to_string(view.info.instance));
      writer.field("state", to_string(view.state));
      writer.field("refusal", to_string(view.refusal));
      writer.field("blocks_indexed", view.blocks_indexed);
      writer.field("requests_in_flight", view.requests_in_flight);
      writer.field("index_synced", view.index_synced);
      writer.field("load_age_ms", static_cast<std::int64_t>(view.load_age.count() / 1'000'000));
      writer.field("cache_events_age_ms", static_cast<std::int64_t>(view.cache_events_age.count() / 1'000'000));
      writer.end_object();
    }
  }
  writer.end_array();
  writer.end_object();
  return out;
}

}  // namespace penstock::router
