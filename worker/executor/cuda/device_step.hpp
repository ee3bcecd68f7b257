// One step as the GPU gets it: a row a token, the rows of a sequence next to each other. Host memory; a plain value.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/types.hpp"

namespace penstock::worker {

struct DeviceStep {
  std::vector<TokenId> tokens;
  std::vector<std::int32_t> positions;
  std::vector<std::int64_t> slots;
  std::vector<std::int32_t> lengths;   // positions + 1
  std::vector<std::int32_t> table_of;  // which table a row has
  std::vector<std::int32_t> tables;    // [sequences][table_stride]
  std::uint32_t rows() const { return static_cast<std::uint32_t>(tokens.size()); }
};

}  // namespace penstock::worker
