// What the two kinds of checkpoint share on the way to a LoadedModel. Internal to the loader.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "common/base/result.hpp"
#include "common/text/tokenizer.hpp"
#include "worker/model/gguf.hpp"
#include "worker/model/lazy_file.hpp"
#include "worker/model/loader.hpp"
#include "worker/model/tensor_table.hpp"

namespace penstock::worker {

Result<LoadedModel> load_gguf(const std::filesystem::path& path, const LoadOptions& options);
Result<LoadedModel> load_folder(const std::filesystem::path& path, const LoadOptions& options);

/// Header and tensor table of a GGUF file, loading no more of it than they need.
Result<GgufFile> read_gguf_structure(const LazyFile& file);

/// Identifies weights without reading them all: BLAKE3 over the settings (GGUF header or config.json) and, of every
/// tensor, name, format, shape and the first and last 4 KiB.
/// Error: the file cannot be read.
Result<std::string> weights_revision(std::string_view settings, const TensorTable& table);

/// Fills what both kinds have: vocabulary, context, tokenizer and template blobs, end tokens. Checks that the
/// tokenizer's ids fit the model and that the template compiles.
Result<void> finish_card(LoadedModel& model, const text::Tokenizer& tokenizer, std::string tokenizer_json,
                         std::string chat_template, const LoadOptions& options);

}  // namespace penstock::worker
