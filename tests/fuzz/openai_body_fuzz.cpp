// Any bytes as the body of a request: parsed or refused with an error object that is JSON, never a crash.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "common/json/json.hpp"
#include "router/core/api/anthropic_encoder.hpp"
#include "router/core/api/validated_request.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace penstock;  // NOLINT: one function
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  for (router::Endpoint endpoint :
       {router::Endpoint::chat, router::Endpoint::completions, router::Endpoint::messages}) {
    const auto parsed = router::parse_request(endpoint, body, {});
    if (parsed) {
      if ((*parsed)->prompts.empty() || (*parsed)->n == 0) std::abort();
    } else if (parsed.error().status != 400 || !json::parse(router::to_json(parsed.error())) ||
               !json::parse(router::to_anthropic_json(parsed.error()))) {
      std::abort();
    }
  }
  return 0;
}
