#include "worker/app/config.hpp"

#include <array>

namespace penstock::worker {

void FakeConfig::fields(config::Fields& f) {
  f.field("context-tokens", context_tokens, "Context length of the fake model.");
  f.field("step-time", step_time, "How long a step of the fake model takes.");
  f.field("token-time", token_time, "How much longer for each token in it.");
  f.field("fail-after-steps", fail_after_steps, "Fails then, as a broken device does, for tests; 0 is never.");
  f.field("hang-after-steps", hang_after_steps, "Stops answering then, for tests; 0 is never.");
}

void WorkerConfig::fields(config::Fields& f) {
  f.field("model", model, "A .gguf file or a Hugging Face folder (config.json, *.safetensors, tokenizer.json).");
  f.field("model-name", model_name, "The name that clients use; empty takes it from the model.");
  f.field("role", role, "What this worker does in a deployment that splits prefill from decode.");
  f.field("executor", executor,
          "cpu and cuda compute the model, cuda in builds with it; fake gives deterministic tokens, for tests.");
  f.field("cuda-launch", cuda_launch,
          "How decode steps on a GPU start: graph, or direct and ordered to search for faults; the same tokens.");
  f.section("fake", fake);

  f.field("threads", threads, "Compute threads; 0 is one a core.");
  f.field("pin-threads", pin_threads, "Pin compute threads to cores; off when several workers share a machine.");
  f.field("tensor-parallel", tensor_parallel,
          "Ranks that split every layer, with cuda a GPU each; must divide the head counts.");
  f.field("kv-pool", kv_pool, "Memory for the KV cache.");
  f.field("kv-dtype", kv_dtype, "How keys and values are kept.");
  f.field("context-tokens", context_tokens, "Longest prompt and output together; 0 takes the model's.");
  f.field("step-tokens", step_tokens, "Token budget of one engine step.");
  f.field("prefill-chunk-tokens", prefill_chunk_tokens, "Most tokens of one prompt in one step.");
  f.field("sequences", sequences, "Most sequences that run at once.");
  f.field("waiting", waiting, "Most requests that wait; more are refused.");
  f.field("prefix-cache", prefix_cache, "Reuse the KV of prompts that begin alike.");
  f.field(
      "step-limit", step_limit,
      "Longest time of a step on a GPU; after it the worker logs where it is and ends, so that routers go elsewhere. "
      "0 is no limit.");

  f.field("control-address", control_address, "Where routers connect.");
  f.field("control-port", control_port, "Port for routers.");
  f.section("control-tls", control_tls);
  f.field("kv-address", kv_address, "Where other workers connect to fetch KV.");
  f.field("kv-port", kv_port, "Port for other workers.");
  f.section("kv-tls", kv_tls);
  f.field("kv-transfer", kv_transfer,
          "How KV moves between workers. UCX cannot encrypt: off loopback this must be trusted-fabric.");
  f.field("kv-lease", kv_lease, "How long offered KV stays pinned without a sign of life from its reader.");
  f.field("ticket-key-file", ticket_key_file,
          "Key that routers sign transfer tickets with; without one any peer on an allowed address is served.");
  f.field("block-hash-key-file", block_hash_key_file, "32-byte key of the block hashes; empty is the published one.");
  f.field("admin-address", admin_address, "Where /metrics, /healthz and /readyz are served.");
  f.field("admin-port", admin_port, "Port of the admin pages.");
  f.field("insecure-plaintext", insecure_plaintext, "Allow addresses off loopback without TLS.");
  f.field("topology", topology, "Where this worker is, as key=value (rack, nvlink-domain); repeatable.");
  f.field("drain-grace", drain_grace, "How long running requests may go on after SIGTERM.");
  f.section("log", log);
}

void WorkerConfig::validate(config::Problems& problems) const {
  if (model.empty()) problems.add("model", "is needed (the fake executor uses its tokenizer)");
  if (step_tokens == 0 || step_tokens > 65536) problems.add("step-tokens", "must be between 1 and 65536");
  if (prefill_chunk_tokens == 0) problems.add("prefill-chunk-tokens", "must be at least 1");
  if (sequences == 0 || sequences > 4096) problems.add("sequences", "must be between 1 and 4096");
  if (tensor_parallel == 0) problems.add("tensor-parallel", "must be at least 1");
  if (kv_lease < std::chrono::milliseconds(100)) problems.add("kv-lease", "must be at least 100ms");
  for (const auto& label : topology) {
    if (label.find('=') == std::string::npos) problems.add("topology", "'" + label + "' is not key=value");
  }
  if (executor == ExecutorKind::cuda) {
    const bool has_kernels = tensor_parallel <= 2 || tensor_parallel == 4 || tensor_parallel == 8;
    if (!has_kernels) problems.add("tensor-parallel", "the cuda executor shares a model among 1, 2, 4 or 8 GPUs");
    if (kv_dtype != KvDtype::bf16) problems.add("kv-dtype", "the cuda executor keeps keys and values as bf16 only");
    if (tensor_parallel > 1 && (kv_transfer != TransferKind::off || role != protocol::Role::unified)) {
      problems.add("kv-transfer",
                   "KV that several GPUs share can't be transferred yet: say --kv-transfer off --role unified, or "
                   "--tensor-parallel 1");
    }
  }
  if (!insecure_plaintext) {
    if (!config::is_loopback_address(control_address) && !control_tls.is_set()) {
      problems.add("control-address", control_address +
                                          " is not loopback: give --control-tls-cert-file and --control-tls-key-file, "
                                          "or say --insecure-plaintext");
    }
  }
  const bool kv_tls_whole = !kv_tls.cert_file.empty() && !kv_tls.key_file.empty() && !kv_tls.ca_file.empty();
  if (kv_tls.is_set() && !kv_tls_whole) {
    problems.add(
        "kv-tls",
        "needs cert-file, key-file and ca-file: workers connect to each other, and both sides show who they are");
  }
  if (!config::is_loopback_address(kv_address) && kv_transfer != TransferKind::trusted_fabric &&
      kv_transfer != TransferKind::off) {
    problems.add("kv-address", kv_address +
                                   " is not loopback and KV travels in plaintext, also with --kv-tls-*: say "
                                   "--kv-transfer trusted-fabric if the network is trusted");
  }
  if (!config::is_loopback_address(kv_address) && kv_transfer == TransferKind::trusted_fabric &&
      ticket_key_file.empty() && !insecure_plaintext) {
    problems.add("ticket-key-file", "is needed, since whoever reaches " + kv_address +
                                        " would get KV without it; or say --insecure-plaintext");
  }
}

std::span<const std::pair<std::string_view, ExecutorKind>> config_names(ExecutorKind) {
  static constexpr std::array<std::pair<std::string_view, ExecutorKind>, 3> names{
      {{"cpu", ExecutorKind::cpu}, {"cuda", ExecutorKind::cuda}, {"fake", ExecutorKind::fake}}};
  return names;
}

std::span<const std::pair<std::string_view, CudaLaunchKind>> config_names(CudaLaunchKind) {
  static constexpr std::array<std::pair<std::string_view, CudaLaunchKind>, 3> names{
      {{"graph", CudaLaunchKind::graph}, {"direct", CudaLaunchKind::direct}, {"ordered", CudaLaunchKind::ordered}}};
  return names;
}

std::span<const std::pair<std::string_view, TransferKind>> config_names(TransferKind) {
  static constexpr std::array<std::pair<std::string_view, TransferKind>, 4> names{
      {{"auto", TransferKind::automatic},
       {"tcp", TransferKind::tcp},
       {"trusted-fabric", TransferKind::trusted_fabric},
       {"off", TransferKind::off}}};
  return names;
}

std::span<const std::pair<std::string_view, KvDtype>> config_names(KvDtype) {
  static constexpr std::array<std::pair<std::string_view, KvDtype>, 3> names{
      {{"bf16", KvDtype::bf16}, {"f16", KvDtype::f16}, {"f32", KvDtype::f32}}};
  return names;
}

}  // namespace penstock::worker

namespace penstock::protocol {

std::span<const std::pair<std::string_view, Role>> config_names(Role) {
  static constexpr std::array<std::pair<std::string_view, Role>, 3> names{
      {{"unified", Role::unified}, {"prefill", Role::prefill}, {"decode", Role::decode}}};
  return names;
}

}  // namespace penstock::protocol
