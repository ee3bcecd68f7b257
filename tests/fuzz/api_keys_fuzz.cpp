// The file of API keys: what is let in is exactly what the file names; an error names its line.
#include "common/base/check.hpp"
#include "common/digest/digest.hpp"
#include "router/server/api_keys.hpp"
#include "tests/fuzz/input.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace penstock;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto keys = router::ApiKeys::parse(text, {});
  if (!keys) {
    PENSTOCK_CHECK(keys.error().message.starts_with("line ") || keys.error().message == "has no key",
                   keys.error().message);
    return 0;
  }
  PENSTOCK_CHECK(keys->size() > 0);
  keys->for_each([](const router::ApiKey& key) { PENSTOCK_CHECK(!key.tenant.empty()); });
  // Neither a hash from the file nor the file itself opens the door, unless the file has the hash of that very text.
  for (const std::string_view key : {text.substr(0, 64), text}) {
    http::Headers headers;
    headers.add("authorization", "Bearer " + std::string(key));
    PENSTOCK_CHECK(keys->find(headers) == nullptr || text.find(digest::sha256_hex(key)) != text.npos);
  }
  return 0;
}
