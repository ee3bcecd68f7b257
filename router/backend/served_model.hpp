// One model that the router serves: its text side, its fleet of workers and the requests that wait for them.
// Owner: ModelRegistry. Thread: the router's I/O thread. Bounds: by FleetSettings, QueueSettings and the token cache.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.hpp"
#include "common/text/block_hash.hpp"
#include "common/text/block_hash_cache.hpp"
#include "router/core/admission/queue.hpp"
#include "router/core/api/model_text.hpp"
#include "router/core/fleet.hpp"

namespace penstock::router {

struct ServedModel {
  ServedModel(std::string model_name, FleetSettings settings, std::uint64_t seed, QueueSettings queue_settings)
      : name(std::move(model_name)),
        block_hashes(settings.block_tokens),
        fleet(std::move(settings), seed),
        queue(queue_settings) {}

  std::string name;
  std::int64_t created = 0;                   // seconds since 1970
  std::shared_ptr<const ModelText> text;      // shared with running requests; null until the blobs are here
  text::BlockExtraKeys extra_keys;            // of the first worker; others must agree
  std::unique_ptr<text::BlockHasher> hasher;  // without a salt
  text::BlockHashCache block_hashes;          // for every salt; also used by the workshop
  Fleet fleet;
  AdmissionQueue queue;
  std::uint32_t connections = 0;
  std::string problem;   // why `text` could not be built; "" if it was, or is not known yet
  TimePoint text_due{};  // until then one connection fetches the blobs and builds `text`; later another may try
};

struct RegistrySettings {
  FleetSettings fleet;
  QueueSettings queue;
  text::BlockHashKey hash_key = text::local_block_hash_key();
  text::PrefixTokenCache::Options token_cache;
  FormatChoices formats;  // of calls and thoughts
  std::uint64_t seed = 0;
  std::uint32_t models_max = 64;
};

class ModelRegistry {
 public:
  explicit ModelRegistry(RegistrySettings settings) : settings_(std::move(settings)) {}

  /// The model of a worker's card; made if it is new. Null when there are too many models.
  ServedModel* admit(const protocol::Welcome& welcome, std::int64_t now_unix_seconds);
  ServedModel* find(std::string_view name);
  const std::map<std::string, std::unique_ptr<ServedModel>, std::less<>>& models() const { return models_; }
  const RegistrySettings& settings() const { return settings_; }
  text::BlockHasher hasher(const ServedModel& model, const std::string& salt) const;

 private:
  RegistrySettings settings_;
  std::map<std::string, std::unique_ptr<ServedModel>, std::less<>> models_;  // requests keep pointers, so they stay
};

}  // namespace penstock::router
