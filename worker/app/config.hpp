// The settings of penstock-worker. One declaration serves options, environment, YAML, --print-config and the docs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/config/fields.hpp"
#include "common/config/program_settings.hpp"
#include "common/protocol/messages.hpp"
#include "worker/engine/executor.hpp"

namespace penstock::worker {

enum class ExecutorKind : std::uint8_t { cpu, cuda, fake };
/// How decode steps on a GPU are started; worker/executor/cuda/decode_runner.hpp.
enum class CudaLaunchKind : std::uint8_t { graph, direct, ordered };
enum class TransferKind : std::uint8_t {
  automatic,       // UCX over whatever it finds on this host: shared memory, TCP
  tcp,             // UCX, TCP only
  trusted_fabric,  // as automatic, and allowed off loopback: KV travels in plaintext
  off,             // no KV transfer: PREFILL and EXPECT are refused
};

struct FakeConfig {
  std::uint32_t context_tokens = 131072;
  std::uint64_t fail_after_steps = 0, hang_after_steps = 0;  // 0: never
  Duration step_time{};
  Duration token_time{};
  void fields(config::Fields& f);
};

struct WorkerConfig {
  std::filesystem::path model;
  std::string model_name;
  protocol::Role role = protocol::Role::unified;
  ExecutorKind executor = ExecutorKind::cpu;
  CudaLaunchKind cuda_launch = CudaLaunchKind::graph;
  FakeConfig fake;

  std::uint32_t threads = 0;
  bool pin_threads = false;
  std::uint32_t tensor_parallel = 1;
  config::ByteSize kv_pool = {512u << 20};
  KvDtype kv_dtype = KvDtype::bf16;
  std::uint32_t context_tokens = 0;
  std::uint32_t step_tokens = 512;
  std::uint32_t prefill_chunk_tokens = 256;
  std::uint32_t sequences = 64;
  std::uint32_t waiting = 1024;
  bool prefix_cache = true;
  Duration step_limit = std::chrono::seconds(60);

  std::string control_address = "127.0.0.1";
  std::uint16_t control_port = 7000;
  config::TlsSettings control_tls;
  std::string kv_address = "127.0.0.1";
  std::uint16_t kv_port = 7100;
  config::PeerTlsSettings kv_tls;
  TransferKind kv_transfer = TransferKind::automatic;
  Duration kv_lease = std::chrono::seconds(10);
  std::filesystem::path ticket_key_file;
  std::filesystem::path block_hash_key_file;
  std::string admin_address = "127.0.0.1";
  std::uint16_t admin_port = 9180;
  bool insecure_plaintext = false;
  std::vector<std::string> topology;
  Duration drain_grace = std::chrono::seconds(30);
  config::LogSettings log;

  void fields(config::Fields& f);
  void validate(config::Problems& problems) const;
};

}  // namespace penstock::worker

// Names of enum settings; found by argument-dependent lookup, so each lives in the namespace of its enum.
namespace penstock::protocol {
std::span<const std::pair<std::string_view, Role>> config_names(Role);
}
namespace penstock::worker {
std::span<const std::pair<std::string_view, ExecutorKind>> config_names(ExecutorKind);
std::span<const std::pair<std::string_view, CudaLaunchKind>> config_names(CudaLaunchKind);
std::span<const std::pair<std::string_view, TransferKind>> config_names(TransferKind);
std::span<const std::pair<std::string_view, KvDtype>> config_names(KvDtype);
}  // namespace penstock::worker
