// Small types that the whole product shares.
#pragma once

#include <cstdint>

namespace penstock {

using TokenId = std::uint32_t;     // index into the model's vocabulary
using BlockIndex = std::uint32_t;  // index of a KV block in one worker's pool

}  // namespace penstock
