// The file of worker addresses: what is taken is an address, and taking the result again changes nothing.
#include <string>

#include "common/base/check.hpp"
#include "router/discovery/worker_list.hpp"
#include "tests/fuzz/input.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace penstock;
  const auto addresses = router::parse_worker_list({reinterpret_cast<const char*>(data), size});
  if (!addresses) {
    PENSTOCK_CHECK(addresses.error().message.starts_with("line "), addresses.error().message);
    return 0;
  }
  std::string text;
  for (const std::string& address : *addresses) {
    PENSTOCK_CHECK(router::check_worker_address(address), address);
    text += address + "\n";
  }
  const auto again = router::parse_worker_list(text);
  PENSTOCK_CHECK(again && *again == *addresses, text);
  return 0;
}
