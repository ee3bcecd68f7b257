#include "router/backend/served_model.hpp"

namespace penstock::router {

ServedModel* ModelRegistry::admit(const protocol::Welcome& welcome, std::int64_t now_unix_seconds) {
  auto found = models_.find(welcome.card.name);
  const bool is_new = found == models_.end();
  if (is_new) {
    if (models_.size() >= settings_.models_max) return nullptr;
    FleetSettings fleet = settings_.fleet;
    fleet.model = welcome.card.name;
    fleet.block_tokens = welcome.block_tokens;
    const text::BlockHasher probe(settings_.hash_key, {}, welcome.block_tokens);
    fleet.hash_scheme = probe.scheme_name();
    auto model = std::make_unique<ServedModel>(welcome.card.name, std::move(fleet), settings_.seed, settings_.queue);
    found = models_.emplace(welcome.card.name, std::move(model)).first;
    found->second->created = now_unix_seconds;
  }
  ServedModel& model = *found->second;
  // With nobody left of the old revision, the next worker says what is served.
  if (model.connections == 0) {
    model.extra_keys = {welcome.card.revision, welcome.kv_dtype, {}, {}};
    model.hasher = std::make_unique<text::BlockHasher>(settings_.hash_key, model.extra_keys, welcome.block_tokens);
    if (model.text && (model.text->card.tokenizer_digest != welcome.card.tokenizer_digest ||
                       model.text->card.chat_template_digest != welcome.card.chat_template_digest ||
                       model.text->card.context_tokens != welcome.card.context_tokens)) {
      model.text = nullptr;
    }
  }
  return &model;
}

ServedModel* ModelRegistry::find(std::string_view name) {
  auto found = models_.find(name);
  return found == models_.end() ? nullptr : found->second.get();
}

text::BlockHasher ModelRegistry::hasher(const ServedModel& model, const std::string& salt) const {
  text::BlockExtraKeys keys = model.extra_keys;
  keys.tenant_salt = salt;
  return text::BlockHasher(settings_.hash_key, keys, model.hasher->block_tokens());
}

}  // namespace penstock::router
