#include "router/proxy/probe.hpp"

namespace penstock::router {

std::string_view to_string(RequestOutcome outcome) {
  switch (outcome) {
    case RequestOutcome::ok:
      return "ok";
    case RequestOutcome::cancelled:
      return "cancelled";
    case RequestOutcome::client_error:
      return "client_error";
    case RequestOutcome::server_error:
      return "server_error";
  }
  return "?";
}

ProxyProbe make_proxy_probe(metrics::Registry& registry) {
  ProxyProbe probe;
  for (std::size_t i = 0; i < request_outcomes; ++i) {
    const std::string outcome(to_string(static_cast<RequestOutcome>(i)));
    probe.requests_total[i] =
        registry.counter("penstock_router_requests_total", "Requests that ended, by outcome.", {{"outcome", outcome}});
  }
  auto counter = [&](const char* name, const char* help) {
    return registry.counter(std::string("penstock_router_") + name, help);
  };
  auto gauge = [&](const char* name, const char* help) {
    return registry.gauge(std::string("penstock_router_") + name, help);
  };
  auto histogram = [&](const char* name, const char* help, const metrics::Buckets& buckets) {
    return registry.histogram(std::string("penstock_router_") + name, help, buckets);
  };
  probe.requests_active = gauge("requests_active", "Requests between arrival and end.");
  probe.queue_requests = gauge("queue_requests", "Requests that wait for a worker.");
  probe.queue_tokens = gauge("queue_tokens", "Uncached tokens of the requests that wait.");
  probe.queue_seconds = histogram("queue_seconds", "From arrival to dispatch.", metrics::latency_buckets());
  probe.time_to_first_token_seconds =
      histogram("time_to_first_token_seconds", "From arrival to the first token.", metrics::latency_buckets());
  probe.inter_token_latency_seconds =
      histogram("inter_token_latency_seconds", "Between two steps of one request.", metrics::latency_buckets());
  probe.request_duration_seconds =
      histogram("request_duration_seconds", "From arrival to the end.", metrics::latency_buckets());
  probe.prepare_seconds =
      histogram("prepare_seconds", "Parse, render, tokenise and hash.", metrics::decision_buckets());
  probe.decision_seconds = histogram("route_decision_seconds", "One choice of a worker.", metrics::decision_buckets());
  probe.prompt_tokens = histogram("request_prompt_tokens", "Prompt tokens of a request.", metrics::token_buckets());
  probe.output_tokens = histogram("request_output_tokens", "Output tokens of a request.", metrics::token_buckets());
  probe.prompt_tokens_total = counter("prompt_tokens_total", "Prompt tokens of dispatched requests.");
  probe.cached_tokens_total = counter("cached_tokens_total", "Prompt tokens that workers found in their cache.");
  probe.output_tokens_total = counter("output_tokens_total", "Tokens that came from workers and counted.");
  probe.retries_total = counter("retries_total", "Attempts after a failure before the first token.");
  probe.migrations_total = counter("migrations_total", "Attempts after a failure past the first token.");
  probe.reoffers_total = counter("reoffers_total", "KV offered again since the decode worker failed.");
  probe.refusals_total = counter("refusals_total", "Attempts that a worker refused without starting.");
  probe.aborts_sent_total = counter("aborts_sent_total", "ABORT messages to workers.");
  probe.token_gaps_total = counter("token_gaps_total", "Attempts that failed since tokens were missing.");
  probe.token_repeats_total = counter("token_repeats_total", "Steps with tokens that were known already.");
  probe.clients_slow_total = counter("clients_slow_total", "Clients cut since they did not read.");
  probe.unknown_fields_total = counter("unknown_fields_total", "Unknown fields of requests, ignored.");
  probe.split_total = counter("split_total", "Requests with prefill and decode apart.");
  return probe;
}

}  // namespace penstock::router
