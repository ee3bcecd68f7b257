#include "router/app/config.hpp"

#include <array>

#include "router/discovery/worker_list.hpp"

namespace penstock::router {

std::span<const std::pair<std::string_view, PolicyKind>> config_names(PolicyKind) {
  static constexpr std::array<std::pair<std::string_view, PolicyKind>, 4> names{
      {{"kv-aware", PolicyKind::kv_aware},
       {"least-load", PolicyKind::least_load},
       {"round-robin", PolicyKind::round_robin},
       {"random", PolicyKind::random}}};
  return names;
}

void LimitSettings::fields(config::Fields& f) {
  f.field("body", body, "Largest request body.");
  f.field("body-deadline", body_deadline, "Longest time for a body to arrive.");
  f.field("header-deadline", header_deadline, "Longest time for a header to arrive.");
  f.field("keep-alive-idle", keep_alive_idle, "An idle connection is closed after it.");
  f.field("connections", connections, "Client connections at once; 0 is half of the file-descriptor limit.");
  f.field("connections-per-source", connections_per_source, "Connections at once from one address.");
  f.field("stream-buffer", stream_buffer, "Unsent bytes of a stream; a client that lets more pile up is cut.");
  f.field("stream-stall", stream_stall, "A client that takes nothing for so long is cut.");
  f.field("heartbeat", heartbeat, "A comment goes into a silent stream after it.");
  f.field("request-timeout", request_timeout, "Deadline of a request; 0 is none.");
  f.field("choices", choices, "Largest n of a request.");
  f.field("requests-per-key", requests_per_key, "Requests at once of one API key, unless its entry says otherwise.");
  f.field("queue-requests", queue_requests, "Waiting requests of a priority class.");
  f.field("queue-bytes", queue_bytes, "Memory of the waiting requests of a priority class.");
  f.field("queue-wait", queue_wait, "Longest wait for a worker.");
  f.field("retry-share", retry_share, "Retries before the first token, as a share of requests.");
  f.field("retries", retries, "Retries of one request before its first token.");
  f.field("migrations", migrations, "Moves of one request to another worker after its first token.");
  f.field("no-progress-decode", no_progress_decode,
          "A worker that shows no progress for so long has failed the request.");
  f.field("no-progress-prefill", no_progress_prefill,
          "The same before the first token. A worker that computes a long prompt shows progress.");
}

void KubernetesSettings::fields(config::Fields& f) {
  f.field("selector", selector, "Label selector of worker pods, e.g. penstock.dev/service=chat; empty is off.");
  f.field("namespace", namespace_,
          "Where those pods are; empty takes that of this pod or of the kubeconfig's context.");
  f.field("worker-port", worker_port, "Port of the control protocol on those pods.");
  f.field("kubeconfig", kubeconfig, "How to reach the API server from outside the cluster.");
  f.field("context", context, "Context of the kubeconfig; empty is its current one.");
}

void RouterConfig::fields(config::Fields& f) {
  f.field("address", address, "Address of the public API.");
  f.field("port", port, "Port of the public API.");
  f.section("tls", tls);
  f.field("api-keys-file", api_keys_file,
          "API keys: a line each of SHA-256 in hex, tenant, limits. Read again on change.");
  f.field("cors-origins", cors_origins, "Web origins whose pages may call; * is any.");
  f.field("insecure-plaintext", insecure_plaintext, "Allow an address off this machine without keys and TLS.");
  f.field("admin-address", admin_address, "Address of metrics, health and debug pages.");
  f.field("admin-port", admin_port, "Port of metrics, health and debug pages.");
  f.field("worker", worker, "A worker's control address, host:port. May be repeated.");
  f.field("worker-file", worker_file, "A file of worker addresses, one a line. Read again on change.");
  f.section("discovery", discovery);
  f.section("worker-tls", worker_tls);
  f.field("ticket-key-file", ticket_key_file, "Key that signs KV transfers; the workers' file must be the same.");
  f.field("block-hash-key-file", block_hash_key_file,
          "32-byte key of block hashes; the workers' file must be the same.");
  f.field("policy", policy, "How a worker is chosen.");
  f.field("split-tokens-min", split_tokens_min, "Fewer uncached prompt tokens are not worth a prefill worker.");
  f.field("index-bytes", index_bytes, "Hard cap of the prefix index, for each model.");
  f.field("token-cache", token_cache, "Memory for token ids of texts seen before; 0 is off.");
  f.field("decisions-kept", decisions_kept, "Routing decisions that /debug/routes can show.");
  f.field("tool-format", tool_format,
          "How models write calls of tools: none, hermes, llama3_json, mistral, qwen3_coder, for all models or "
          "as MODEL=FORMAT. May be repeated; otherwise the chat template shows it.");
  f.field("reasoning-format", reasoning_format,
          "How models write thoughts: none or think, for all models or as MODEL=FORMAT. May be repeated; otherwise the "
          "chat template shows it.");
  f.field("seed", seed, "Seed of tie breaks and sampling seeds; 0 takes a random one.");
  f.field("begin-traces", begin_traces, "Give requests without a traceparent a trace of their own.");
  f.field("workshop-threads", workshop_threads, "Threads that parse and tokenise long requests.");
  f.field("drain-grace", drain_grace, "How long streams may go on after SIGTERM.");
  f.section("limits", limits);
  f.section("log", log);
}

void RouterConfig::validate(config::Problems& problems) const {
  for (const auto& one : worker) {
    if (auto checked = check_worker_address(one); !checked) problems.add("worker", checked.error().message);
  }
  FormatChoices choices;
  for (const auto& one : tool_format) {
    if (auto added = choices.add_tools(one); !added) problems.add("tool-format", added.error().message);
  }
  for (const auto& one : reasoning_format) {
    if (auto added = choices.add_reasoning(one); !added) problems.add("reasoning-format", added.error().message);
  }
  const bool is_guarded = !api_keys_file.empty() && tls.is_set();
  if (!config::is_loopback_address(address) && !is_guarded && !insecure_plaintext) {
    problems.add("address", address +
                                " can be reached from other machines: give api-keys-file and tls.cert-file, or "
                                "allow it by --insecure-plaintext");
  }
  if (!config::is_loopback_address(admin_address) && !insecure_plaintext) {
    problems.add("admin-address",
                 admin_address + " can be reached from other machines: allow it by --insecure-plaintext");
  }
  if (tls.is_set() && (tls.cert_file.empty() || tls.key_file.empty())) {
    problems.add("tls", "needs both cert-file and key-file");
  }
  if (limits.choices == 0 || limits.choices > 128) problems.add("limits.choices", "must be from 1 to 128");
  if (workshop_threads == 0 || workshop_threads > 256) problems.add("workshop-threads", "must be from 1 to 256");
  for (const auto& sentence : fleet_settings().validate()) problems.add("policy", sentence);
}

FleetSettings RouterConfig::fleet_settings() const {
  FleetSettings settings;
  settings.policy.kind = policy;
  settings.policy.split_tokens_min = split_tokens_min;
  settings.index_bytes_max = index_bytes.bytes;
  return settings;
}

http::ServerLimits RouterConfig::server_limits() const {
  http::ServerLimits server;
  server.body_bytes_max = limits.body.bytes;
  server.body_deadline = limits.body_deadline;
  server.header_deadline = limits.header_deadline;
  server.keep_alive_idle = limits.keep_alive_idle;
  server.connections_max = limits.connections;
  server.connections_per_source_max = limits.connections_per_source;
  server.stream_buffer_bytes_max = limits.stream_buffer.bytes;
  server.stream_stall_max = limits.stream_stall;
  return server;
}

MigrationLimits RouterConfig::migration_limits() const {
  MigrationLimits migration;
  migration.retries_max = limits.retries;
  migration.migrations_max = limits.migrations;
  migration.no_progress_decode = limits.no_progress_decode;
  migration.no_progress_prefill = limits.no_progress_prefill;
  return migration;
}

QueueSettings RouterConfig::queue_settings() const {
  QueueSettings queue;
  queue.requests_max = limits.queue_requests;
  queue.bytes_max = limits.queue_bytes.bytes;
  queue.wait_max = limits.queue_wait;
  return queue;
}

// Entries that are no format have been refused by validate().
FormatChoices RouterConfig::formats() const {
  FormatChoices choices;
  for (const auto& one : tool_format) (void)choices.add_tools(one);
  for (const auto& one : reasoning_format) (void)choices.add_reasoning(one);
  return choices;
}

}  // namespace penstock::router
