// The settings of penstock-router. One declaration serves options, environment, YAML, --print-config and the docs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/config/fields.hpp"
#include "common/config/program_settings.hpp"
#include "common/http/limits.hpp"
#include "router/core/admission/limits.hpp"
#include "router/core/admission/queue.hpp"
#include "router/core/api/validated_request.hpp"
#include "router/core/migration/request_state.hpp"
#include "router/core/output/formats.hpp"
#include "router/core/policy/settings.hpp"

namespace penstock::router {

/// What a client and a request may take; one table, so that it can be read at once.
struct LimitSettings {
  config::ByteSize body{8u << 20};
  Duration body_deadline = std::chrono::seconds(60);
  Duration header_deadline = std::chrono::seconds(10);
  Duration keep_alive_idle = std::chrono::seconds(75);
  std::uint64_t connections = 0;
  std::uint64_t connections_per_source = 1'000;
  config::ByteSize stream_buffer{256u << 10};
  Duration stream_stall = std::chrono::seconds(30);
  Duration heartbeat = std::chrono::seconds(15);
  Duration request_timeout{};
  std::uint32_t choices = 16;
  std::uint32_t requests_per_key = 64;
  std::uint32_t queue_requests = 1024;
  config::ByteSize queue_bytes{64u << 20};
  Duration queue_wait = std::chrono::seconds(30);
  double retry_share = 0.1;
  std::uint32_t retries = 1;
  std::uint32_t migrations = 2;
  Duration no_progress_decode = std::chrono::seconds(10);
  Duration no_progress_prefill = std::chrono::seconds(60);

  void fields(config::Fields& f);
};

/// Workers found as pods of this cluster; off without a selector.
struct KubernetesSettings {
  std::string selector;
  std::string namespace_;
  std::uint16_t worker_port = 7000;
  std::filesystem::path kubeconfig;
  std::string context;

  void fields(config::Fields& f);
};

struct DiscoverySettings {
  KubernetesSettings kubernetes;
  void fields(config::Fields& f) { f.section("kubernetes", kubernetes); }
};

struct RouterConfig {
  std::string address = "127.0.0.1";
  std::uint16_t port = 8000;
  config::TlsSettings tls;
  std::filesystem::path api_keys_file;
  std::vector<std::string> cors_origins;
  bool insecure_plaintext = false;
  std::string admin_address = "127.0.0.1";
  std::uint16_t admin_port = 9180;

  std::vector<std::string> worker;
  std::filesystem::path worker_file;
  DiscoverySettings discovery;
  config::PeerTlsSettings worker_tls;
  std::filesystem::path ticket_key_file;
  std::filesystem::path block_hash_key_file;

  PolicyKind policy = PolicyKind::kv_aware;
  std::uint32_t split_tokens_min = PolicySettings{}.split_tokens_min;
  config::ByteSize index_bytes{256u << 20};
  config::ByteSize token_cache{64u << 20};
  std::uint32_t decisions_kept = 256;
  std::vector<std::string> tool_format;
  std::vector<std::string> reasoning_format;
  std::uint64_t seed = 0;
  bool begin_traces = false;
  std::uint32_t workshop_threads = 2;
  Duration drain_grace = std::chrono::seconds(30);
  LimitSettings limits;
  config::LogSettings log;

  void fields(config::Fields& f);
  void validate(config::Problems& problems) const;

  FleetSettings fleet_settings() const;
  http::ServerLimits server_limits() const;
  MigrationLimits migration_limits() const;
  QueueSettings queue_settings() const;
  FormatChoices formats() const;
};

std::span<const std::pair<std::string_view, PolicyKind>> config_names(PolicyKind);

}  // namespace penstock::router
