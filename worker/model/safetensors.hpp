// Reads the structure of a safetensors file. The bytes are hostile: the header is bounded, names are unique, every
// tensor's size follows from its shape, and together they cover the data exactly, without holes or overlaps.
// Views point into the bytes given. Pure; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "common/base/bytes.hpp"
#include "common/base/result.hpp"
#include "worker/model/tensor_table.hpp"

namespace penstock::worker {

struct SafetensorsLimits {
  std::uint64_t header_bytes_max = 32u << 20;
  std::uint64_t tensors_max = 200'000;
};

/// Adds the tensors of one file to `table`. Errors name the tensor where there is one.
Result<void> read_safetensors(base::BytesView file, TensorTable& table, const SafetensorsLimits& limits = {});

/// The weight map of a model.safetensors.index.json: tensor name to file name. File names with a path are refused.
Result<std::map<std::string, std::string>> read_safetensors_index(std::string_view json);

}  // namespace penstock::worker
