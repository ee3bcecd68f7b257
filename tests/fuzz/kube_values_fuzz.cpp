// Any text as a quantity, a time, a failure of the API server, base64 and a kubeconfig: what is read prints and reads
// back as the same value, the rest is refused.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "common/json/json.hpp"
#include "common/kube/core/cluster_config.hpp"
#include "common/kube/model/quantity.hpp"
#include "common/kube/model/status.hpp"
#include "common/kube/model/timestamp.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace penstock;  // NOLINT: one function
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto quantity = kube::Quantity::parse(text)) {
    const auto again = kube::Quantity::parse(quantity->to_string());
    if (!again || *again != *quantity) std::abort();
  }
  if (const auto time = kube::parse_timestamp(text)) {
    if (time->unix_us >= -62'135'596'800'000'000 && time->unix_us <= 253'402'300'799'999'999 &&
        kube::parse_timestamp(kube::format_micro_time(*time)) != time) {
      std::abort();
    }
  }
  if (kube::to_string(kube::parse_status(500, text, text)).size() > 512) std::abort();
  (void)kube::decode_base64(text);
  if (const auto value = json::parse(text)) {
    const auto config = kube::parse_kubeconfig(*value, "/folder");
    if (config && (config->host.empty() || config->port == 0)) std::abort();
  }
  return 0;
}
