#include "worker/model/safetensors.hpp"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "common/json/json.hpp"

namespace penstock::worker {
namespace {

using kernels::cpu::WeightFormat;

Error bad(const std::string& why) {
  return make_error(ErrorCode::data_loss, "safetensors: " + why);
}

std::optional<WeightFormat> weight_format(std::string_view dtype) {
  if (dtype == "F32") return WeightFormat::f32;
  if (dtype == "F16") return WeightFormat::f16;
  if (dtype == "BF16") return WeightFormat::bf16;
  return std::nullopt;
}

TensorKind kind_of(std::string_view dtype) {
  if (dtype == "F8_E4M3") return TensorKind::e4m3;
  return dtype == "U8" ? TensorKind::bytes : TensorKind::plain;
}

struct Extent {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

Result<Extent> read_offsets(const json::Object& entry, const json::Path& path) {
  PENSTOCK_TRY(const json::Array* offsets, json::required<const json::Array*>(entry, "data_offsets", path));
  if (offsets->size() != 2) return bad(path.to_string() + " needs two data_offsets");
  Extent extent;
  PENSTOCK_TRY(extent.begin, json::as<std::uint64_t>((*offsets)[0], path));
  PENSTOCK_TRY(extent.end, json::as<std::uint64_t>((*offsets)[1], path));
  return extent;
}

Result<TensorView> read_shape(const json::Object& entry, const json::Path& path, std::uint64_t& bytes) {
  PENSTOCK_TRY(const std::string_view dtype, json::required<std::string_view>(entry, "dtype", path));
  const TensorKind kind = kind_of(dtype);
  const auto format = weight_format(dtype);
  if (!format && kind == TensorKind::plain) {
    return make_error(ErrorCode::unsupported, "safetensors: tensor " + path.to_string() + " has type " +
                                                  std::string(dtype) + ", which is not supported");
  }
  PENSTOCK_TRY(const json::Array* shape, json::required<const json::Array*>(entry, "shape", path));
  if (shape->size() > 4) {
    return bad("tensor " + path.to_string() + " has " + std::to_string(shape->size()) + " dimensions");
  }
  TensorView view;
  view.kind = kind;
  view.format = format.value_or(WeightFormat::f32);
  view.columns = 1;  // of a number, which has no dimensions
  bytes = kind == TensorKind::plain ? kernels::cpu::block_bytes(view.format) : 1;
  for (std::size_t i = 0; i < shape->size(); ++i) {
    PENSTOCK_TRY(const std::uint64_t dim, json::as<std::uint64_t>((*shape)[i], path));
    if (dim == 0 || __builtin_mul_overflow(bytes, dim, &bytes)) {
      return bad("tensor " + path.to_string() + " has impossible dimensions");
    }
    // Divisors of `bytes`, so these cannot overflow either.
    if (i + 1 == shape->size()) {
      view.columns = dim;
    } else {
      view.rows *= dim;
    }
  }
  return view;
}

}  // namespace

Result<void> read_safetensors(base::BytesView file, TensorTable& table, const SafetensorsLimits& limits) {
  base::ByteReader reader(file);
  const auto header_bytes = reader.read<std::uint64_t>();
  if (!reader.ok()) return bad("the file is shorter than 8 bytes");
  if (header_bytes < 2 || header_bytes > limits.header_bytes_max || header_bytes > reader.left()) {
    return bad("the header claims " + std::to_string(header_bytes) + " bytes");
  }
  const std::string_view header = base::as_text(reader.take(header_bytes));
  const base::BytesView data = file.subspan(8 + header_bytes);
  if (header.front() != '{') return bad("the header is no JSON object");
  json::Limits json_limits;
  json_limits.depth_max = 8;
  json_limits.keys_max = limits.tensors_max * 4;
  json_limits.text_bytes_max = limits.header_bytes_max;
  auto document = json::parse(header, json_limits);
  if (!document) return bad("the header is no valid JSON: " + document.error().message);
  const json::Path root;
  PENSTOCK_TRY(const json::Object* entries, json::as<const json::Object*>(*document, root));
  if (entries->size() > limits.tensors_max) return bad("it claims " + std::to_string(entries->size()) + " tensors");

  std::vector<Extent> extents;
  for (const auto& member : *entries) {
    if (member.key() == "__metadata__") continue;
    const std::string_view name(member.key().data(), member.key().size());
    const json::Path path = root.field(name);
    PENSTOCK_TRY(const json::Object* entry, json::as<const json::Object*>(member.value(), path));
    std::uint64_t bytes = 0;
    PENSTOCK_TRY(TensorView view, read_shape(*entry, path, bytes));
    PENSTOCK_TRY(const Extent extent, read_offsets(*entry, path));
    if (extent.begin > extent.end || extent.end > data.size()) {
      return bad("tensor " + std::string(name) + " reaches beyond the end of the file");
    }
    if (extent.end - extent.begin != bytes) {
      return bad("tensor " + std::string(name) + " has " + std::to_string(extent.end - extent.begin) +
                 " bytes, its shape needs " + std::to_string(bytes));
    }
    view.bytes = data.subspan(extent.begin, bytes);
    PENSTOCK_TRY_VOID(table.add(name, view));
    extents.push_back(extent);
  }
  std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) { return a.begin < b.begin; });
  std::uint64_t covered = 0;
  for (const Extent& extent : extents) {
    if (extent.begin < covered) return bad("tensors overlap at data offset " + std::to_string(extent.begin));
    if (extent.begin > covered) return bad("there is a hole at data offset " + std::to_string(covered));
    covered = extent.end;
  }
  if (covered != data.size())
    return bad("the last " + std::to_string(data.size() - covered) + " bytes belong to no tensor");
  return {};
}

Result<std::map<std::string, std::string>> read_safetensors_index(std::string_view text) {
  json::Limits limits;
  limits.depth_max = 8;
  limits.keys_max = 400'000;
  limits.text_bytes_max = 64u << 20;
  PENSTOCK_TRY(const json::Value document, json::parse(text, limits));
  const json::Path root;
  PENSTOCK_TRY(const json::Object* index, json::as<const json::Object*>(document, root));
  PENSTOCK_TRY(const json::Object* weight_map, json::required<const json::Object*>(*index, "weight_map", root));
  std::map<std::string, std::string> files;
  const json::Path map_path = root.field("weight_map");
  for (const auto& member : *weight_map) {
    const std::string_view name(member.key().data(), member.key().size());
    PENSTOCK_TRY(const std::string_view file, json::as<std::string_view>(member.value(), map_path.field(name)));
    if (file.find('/') != std::string_view::npos || file.find('\0') != std::string_view::npos ||
        file.starts_with('.') || !file.ends_with(".safetensors")) {
      return make_error(ErrorCode::invalid_argument, "model.safetensors.index.json: tensor " + std::string(name) +
                                                         " names the file \"" + std::string(file) +
                                                         "\"; only plain *.safetensors names are taken");
    }
    files.emplace(name, file);
  }
  return files;
}

}  // namespace penstock::worker
