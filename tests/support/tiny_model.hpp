// Small random models written as real checkpoints: GGUF in any weight format, or a Hugging Face folder, whole or in
// shards. The same settings and seed give the same weights in every container up to the format's rounding, so that
// tests of loaders and executors need no download. For tests only.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "kernels/cpu/weight_format.hpp"

namespace penstock::test {

struct TinyModel {
  std::string architecture = "llama";  // "llama", "qwen2", "qwen3"; "gptoss", with experts and in a folder only
  std::uint32_t layers = 2;
  std::uint32_t hidden = 64;
  std::uint32_t heads = 8;
  std::uint32_t kv_heads = 4;
  std::uint32_t head_dim = 32;
  std::uint32_t ffn = 256;
  std::uint32_t experts = 0;  // in place of each FFN, as in Mixtral ("llama") and Qwen3-MoE ("qwen3"); of `ffn` each
  std::uint32_t experts_per_token = 2;
  bool renormalises = true;  // false: "qwen3" in a folder only
  std::uint32_t window = 0;  // keys that a row sees, in a folder: Mistral in all layers, "gptoss" in even ones; 0: all
  std::uint32_t vocabulary = 288;  // the byte tokenizer's ids and padding
  std::uint32_t context = 512;
  bool tied = true;
  kernels::cpu::WeightFormat format = kernels::cpu::WeightFormat::f32;
  std::uint64_t seed = 1;
  std::string rope_scaling;                             // "", "linear", "llama3" (folder only), "yarn"
  std::map<std::string, std::uint32_t> extra_metadata;  // more numbers in the GGUF header
  std::map<std::string, std::string> extra_config;      // more fields of config.json, values as JSON
  std::string fp8;  // folder only: "tensor", "row" or "block" has layers' matrices in FP8 with such scales
};

/// A matrix or vector in full precision, row-major, as a Hugging Face checkpoint holds it.
struct TinyTensor {
  std::uint64_t rows = 1;
  std::uint64_t columns = 0;
  std::vector<float> values;
};

/// How a folder names the router of a layer with experts and the three matrices of each expert.
struct TinyExpertNames {
  std::string router, each, gate, up, down;
};
TinyExpertNames expert_names(const TinyModel& model);

/// All tensors by Hugging Face name; gpt-oss's experts one by one. Values are exactly representable in `format` where
/// that is a dense one.
std::map<std::string, TinyTensor> tiny_tensors(const TinyModel& model);

/// The bytes of a tensor in a weight format: simple round-to-nearest quantisation.
std::string encode_tensor(const TinyTensor& tensor, kernels::cpu::WeightFormat format);

/// A matrix as e4m3 codes, each the nearest, times scales that let the largest reach 448.
struct TinyFp8 {
  std::string codes;
  std::uint64_t scale_rows = 1, scale_columns = 1;
  std::vector<float> scales;
};
TinyFp8 encode_fp8(const TinyTensor& tensor, const std::string& kind);
/// What config.json says about such a checkpoint, with a comma in front; nothing if `kind` is "".
std::string fp8_config(const std::string& kind);

std::string dtype_of(kernels::cpu::WeightFormat format);
/// Makes every value one that MXFP4 has, near to what it was.
void snap_to_mxfp4(TinyTensor& tensor);
/// gpt-oss's experts of a layer as its checkpoints have them. `shape` is a list with commas.
using AddTensor = std::function<void(const std::string& name, const std::string& dtype, const std::string& shape,
                                     const std::string& bytes)>;
void add_fused_experts(const TinyModel& model, const std::map<std::string, TinyTensor>& tensors, std::uint32_t layer,
                       const AddTensor& add);

/// The bytes of a GGUF file. Vectors are f32; q and k of Llama models are in GGUF's interleaved order.
std::string tiny_gguf(const TinyModel& model);
void write_tiny_gguf(const TinyModel& model, const std::filesystem::path& path);
/// A folder with config.json, tokenizer.json and safetensors in `shards` files. `format` must be dense.
void write_tiny_folder(const TinyModel& model, const std::filesystem::path& folder, std::uint32_t shards);

}  // namespace penstock::test
