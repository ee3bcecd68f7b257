#include "worker/app/identity.hpp"

#include "common/digest/digest.hpp"

namespace penstock::worker {

text::BlockExtraKeys block_extra_keys(const protocol::ModelCard& card, KvDtype dtype) {
  text::BlockExtraKeys extra;
  extra.model_revision = card.revision;
  extra.kv_dtype = std::string(to_string(dtype));
  return extra;
}

std::string layout_fingerprint(const protocol::ModelCard& card, const KvGeometry& geometry) {
  // The slab order is named, so that a change of it separates old workers from new ones.
  std::string text =
      "kv-slab head,layer,k/v,token,dim 1|" + card.revision + "|" + std::string(to_string(geometry.dtype));
  for (const std::uint32_t number :
       {geometry.kv_heads, geometry.layers, geometry.block_tokens, geometry.head_dim, protocol::protocol_version}) {
    text += "|" + std::to_string(number);
  }
  if (geometry.key_order == KeyOrder::pairs) text += "|keys in pairs";
  return digest::sha256_hex(text);
}

WorkerIdentity make_identity(const WorkerConfig& config, const LoadedModel& model, const Executor& executor,
                             const KvPoolView& pool, const text::BlockHashKey& key) {
  WorkerIdentity identity;
  protocol::Welcome& welcome = identity.welcome;
  welcome.instance = random_id<InstanceId>();
  welcome.role = config.role;
  welcome.card = model.card;
  welcome.card.context_tokens = executor.limits().sequence_tokens_max;
  welcome.block_tokens = pool.geometry.block_tokens;
  welcome.kv_dtype = std::string(to_string(pool.geometry.dtype));
  welcome.kv_blocks = pool.blocks;
  welcome.sequences_max = executor.limits().sequences_max;
  welcome.tensor_parallel = config.tensor_parallel;
  welcome.kv_layout_fingerprint = layout_fingerprint(model.card, pool.geometry);
  for (const auto& label : config.topology) {
    const auto split = label.find('=');
    welcome.topology.emplace_back(label.substr(0, split), label.substr(split + 1));
  }
  for (const auto& blob : model.blobs) identity.blobs.emplace(blob.digest, blob.bytes);

  const text::BlockHasher hasher(key, block_extra_keys(model.card, pool.geometry.dtype), pool.geometry.block_tokens);
  welcome.hash_scheme = hasher.scheme_name();
  identity.hash_probe = [hasher](const std::vector<TokenId>& tokens) { return hasher.hash_blocks(tokens); };
  return identity;
}

}  // namespace penstock::worker
