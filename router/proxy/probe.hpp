// Metrics of the request path. All series exist from the start, at zero.
#pragma once

#include <array>
#include <string_view>

#include "common/metrics/metrics.hpp"

namespace penstock::router {

enum class RequestOutcome : std::uint8_t {
  ok,
  cancelled,     // the client left
  client_error,  // 4xx
  server_error,  // 5xx, or an error within a stream
};
inline constexpr std::size_t request_outcomes = 4;
std::string_view to_string(RequestOutcome outcome);

struct ProxyProbe {
  std::array<metrics::Counter, request_outcomes> requests_total;
  metrics::Gauge requests_active;
  metrics::Gauge queue_requests;
  metrics::Gauge queue_tokens;
  metrics::Histogram queue_seconds;
  metrics::Histogram time_to_first_token_seconds;
  metrics::Histogram inter_token_latency_seconds;
  metrics::Histogram request_duration_seconds;
  metrics::Histogram prepare_seconds;
  metrics::Histogram decision_seconds;
  metrics::Histogram prompt_tokens;
  metrics::Histogram output_tokens;
  metrics::Counter prompt_tokens_total;
  metrics::Counter cached_tokens_total;
  metrics::Counter output_tokens_total;
  metrics::Counter retries_total;
  metrics::Counter migrations_total;
  metrics::Counter reoffers_total;
  metrics::Counter refusals_total;
  metrics::Counter aborts_sent_total;
  metrics::Counter token_gaps_total;
  metrics::Counter token_repeats_total;
  metrics::Counter clients_slow_total;
  metrics::Counter unknown_fields_total;
  metrics::Counter split_total;
};
ProxyProbe make_proxy_probe(metrics::Registry& registry);

}  // namespace penstock::router
