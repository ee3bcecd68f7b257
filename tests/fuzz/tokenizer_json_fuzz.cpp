// A tokenizer.json; what loads must also encode and decode.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/text/tokenizer.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace penstock;
  const auto tokenizer = text::Tokenizer::from_json({reinterpret_cast<const char*>(data), size});
  if (!tokenizer) return 0;
  const auto ids = (*tokenizer)->encode("Hello, world 12");
  if (ids) (void)(*tokenizer)->decode(*ids, text::SkipSpecial::no);
  return 0;
}
