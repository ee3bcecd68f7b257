// Loads a model: a .gguf file, a folder with one, or a Hugging Face folder with config.json, safetensors and
// tokenizer.json. Weights are packed tensor by tensor and what was read is given back, so memory stays at about the
// packed size. Every error is one sentence that names what is wrong; nothing is guessed. Called once at start, before
// listening.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "common/base/result.hpp"
#include "common/protocol/messages.hpp"
#include "worker/model/model_spec.hpp"
#include "worker/model/weights.hpp"

namespace penstock::worker {

enum class Fp8Loading : std::uint8_t {
  widen,  // to bf16, each weight rounded once
  keep,   // in layers whose matrices are all FP8; one rank only
};

struct LoadOptions {
  std::string served_name;               // "": the file's or folder's name
  std::uint32_t tensor_parallel = 1;     // shares to pack
  std::uint32_t context_tokens_max = 0;  // lowers the model's own; 0: the model's
  Fp8Loading fp8 = Fp8Loading::widen;
  std::function<void(std::uint64_t bytes_done, std::uint64_t bytes_total)> progress;  // may be empty
};

/// A text that travels to routers by its digest.
struct ModelBlob {
  std::string digest;
  std::string bytes;
};

struct LoadedModel {
  ModelSpec spec;
  ModelWeights weights;
  protocol::ModelCard card;
  std::vector<ModelBlob> blobs;  // tokenizer.json and, if the model has one, the chat template
};

Result<LoadedModel> load_model(const std::filesystem::path& path, const LoadOptions& options);

/// The digest of a text: 128 bits of BLAKE3 in hex. Not secret.
std::string content_digest(std::string_view bytes);

}  // namespace penstock::worker
