// What a worker says of itself and its model, taken by a router: the welcome's card and the chat template's blob become
// a model that requests can be prepared for, or a sentence. The input is u16 (bytes of the welcome), welcome, template.
#include "common/base/check.hpp"
#include "common/protocol/codec.hpp"
#include "router/backend/served_model.hpp"
#include "router/core/api/prepare.hpp"
#include "tests/fuzz/input.hpp"
#include "tests/support/byte_tokenizer.hpp"

namespace {

using namespace penstock;  // NOLINT: one file

void check_requests(const router::ModelText& model) {
  constexpr std::string_view bodies[] = {
      R"({"model":"m","messages":[{"role":"user","content":"hi"}]})",
      R"({"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":5,"n":2,"logprobs":true})"};
  for (const std::string_view body : bodies) {
    const auto parsed = router::parse_request(router::Endpoint::chat, body, {});
    PENSTOCK_CHECK(parsed);
    const auto prepared = router::prepare(*parsed, model, 1'700'000'000);
    if (!prepared) continue;
    for (const auto& prompt : prepared->prompts) {
      PENSTOCK_CHECK(prompt.tokens.size() + prompt.tokens_max <= model.card.context_tokens);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::uint16_t welcome_type = protocol::encode(protocol::WorkerMessage(protocol::Welcome{})).type;
  static const std::string tokenizer = test::byte_tokenizer_json();
  fuzz::Input input(data, size);
  const std::size_t welcome_bytes = input.number();
  const auto message = protocol::decode_worker_message(welcome_type, input.text(welcome_bytes));
  if (!message) return 0;
  const auto& welcome = std::get<protocol::Welcome>(*message);
  // As router/backend/worker_connection.cpp does it.
  if (welcome.instance.is_zero() || welcome.card.name.empty() || welcome.block_tokens == 0) return 0;
  router::ModelRegistry registry({});
  router::ServedModel* model = registry.admit(welcome, 0);
  PENSTOCK_CHECK(model != nullptr && registry.find(welcome.card.name) == model);
  const std::vector<TokenId> probe(64, 1);
  const TimePoint now{std::chrono::hours(1)};
  const auto verdict = model->fleet.on_welcome(welcome, "w:1", model->hasher->hash_blocks(probe), now);
  PENSTOCK_CHECK((verdict.refusal == router::Refusal::none) == verdict.detail.empty(), verdict.detail);
  (void)model->fleet.tick(now + std::chrono::seconds(1));
  const auto text = router::ModelText::build(welcome.card, tokenizer, input.rest(), {});
  if (text) check_requests(**text);
  return 0;
}
