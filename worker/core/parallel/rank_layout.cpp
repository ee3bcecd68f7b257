#include "worker/core/parallel/rank_layout.hpp"

#include <algorithm>

#include "common/base/check.hpp"

namespace penstock::worker {
namespace {

Error unsupported(const std::string& why) {
  return make_error(ErrorCode::unsupported, "rank layout: " + why);
}

/// Where a rank stands among the ranks that whole experts are spread over.
std::uint32_t expert_place(const AxisSizes& sizes, const Coordinates& at) {
  if (sizes.expert == 1) return 0;
  const std::uint32_t within_replica = at.context * sizes.tensor + at.tensor;
  if (sizes.expert == sizes.tensor * sizes.context) return within_replica;
  return at.data * sizes.tensor * sizes.context + within_replica;
}

}  // namespace

std::string_view to_string(Axis axis) {
  switch (axis) {
    case Axis::tensor:
      return "tensor";
    case Axis::context:
      return "context";
    case Axis::data:
      return "data";
    case Axis::pipeline:
      return "pipeline";
    case Axis::expert:
      return "expert";
  }
  return "?";
}

std::uint32_t AxisSizes::of(Axis axis) const {
  switch (axis) {
    case Axis::tensor:
      return tensor;
    case Axis::context:
      return context;
    case Axis::data:
      return data;
    case Axis::pipeline:
      return pipeline;
    case Axis::expert:
      return expert;
  }
  return 0;
}

Share share_of(std::uint32_t total, std::uint32_t parts, std::uint32_t index) {
  PENSTOCK_CHECK(index < parts, "index", index, "parts", parts);
  const std::uint32_t each = total / parts, larger = total % parts;
  return {index * each + std::min(index, larger), each + (index < larger ? 1 : 0)};
}

Result<RankLayout> RankLayout::make(const AxisSizes& sizes) {
  std::uint64_t ranks = 1;
  for (const Axis axis : all_axes) {
    const std::uint32_t size = sizes.of(axis);
    if (size == 0 || size > ranks_max) {
      return make_error(ErrorCode::invalid_argument, "rank layout: " + std::string(worker::to_string(axis)) + " is " +
                                                         std::to_string(size) + ", must be between 1 and " +
                                                         std::to_string(ranks_max));
    }
    if (axis != Axis::expert) ranks *= size;
  }
  if (ranks > ranks_max) {
    return make_error(ErrorCode::invalid_argument, "rank layout: " + std::to_string(ranks) + " ranks, at most " +
                                                       std::to_string(ranks_max) + " are possible");
  }
  const std::uint32_t replica = sizes.tensor * sizes.context;
  const bool crosses_replicas = sizes.expert > 1 && sizes.expert == replica * sizes.data && sizes.data > 1;
  if (sizes.expert != 1 && sizes.expert != replica && sizes.expert != replica * sizes.data) {
    return unsupported("expert " + std::to_string(sizes.expert) + " must be 1, tensor * context (" +
                       std::to_string(replica) + ") or tensor * context * data (" +
                       std::to_string(replica * sizes.data) + "): experts that are both spread and cut are not built");
  }
  if (sizes.context > 1 && sizes.data > 1) return unsupported("context * data is not built: use one of them");
  if (sizes.context > 1 && sizes.pipeline > 1) return unsupported("context * pipeline is not built: use one of them");
  if (crosses_replicas && sizes.pipeline > 1) {
    return unsupported("expert across data * pipeline is not built: replicas step together, micro-batches do not");
  }
  return RankLayout(sizes);
}

Coordinates RankLayout::coordinates(std::uint32_t rank) const {
  PENSTOCK_CHECK(rank < ranks(), "rank", rank, "ranks", ranks());
  Coordinates at;
  at.tensor = rank % sizes_.tensor;
  rank /= sizes_.tensor;
  at.context = rank % sizes_.context;
  rank /= sizes_.context;
  at.data = rank % sizes_.data;
  at.pipeline = rank / sizes_.data;
  at.expert = expert_place(sizes_, at);
  return at;
}

std::uint32_t RankLayout::rank_of(const Coordinates& at) const {
  PENSTOCK_CHECK(at.tensor < sizes_.tensor && at.context < sizes_.context, "tensor", at.tensor, "context", at.context);
  PENSTOCK_CHECK(at.data < sizes_.data && at.pipeline < sizes_.pipeline, "data", at.data, "pipeline", at.pipeline);
  return ((at.pipeline * sizes_.data + at.data) * sizes_.context + at.context) * sizes_.tensor + at.tensor;
}

std::vector<std::uint32_t> RankLayout::group(Axis axis, std::uint32_t rank) const {
  const Coordinates own = coordinates(rank);
  std::vector<std::uint32_t> members(sizes_.of(axis), rank);
  for (std::uint32_t other = 0; other < ranks(); ++other) {
    const Coordinates at = coordinates(other);
    const auto same = [&](Axis each) { return axis == each || at.of(each) == own.of(each); };
    bool is_member = same(Axis::tensor) && same(Axis::context) && same(Axis::data) && same(Axis::pipeline);
    if (axis == Axis::expert) {
      const bool spread = sizes_.expert > 1, crosses = sizes_.expert > stage_ranks();
      is_member = spread ? at.pipeline == own.pipeline && (crosses || at.data == own.data) : other == rank;
    }
    if (is_member) members[at.of(axis)] = other;
  }
  return members;
}

std::string RankLayout::to_string() const {
  std::string text;
  const auto add = [&](const char* name, std::uint32_t size) {
    if (size > 1) text += (text.empty() ? "" : " ") + std::string(name) + "=" + std::to_string(size);
  };
  add("tp", sizes_.tensor);
  add("cp", sizes_.context);
  add("dp", sizes_.data);
  add("pp", sizes_.pipeline);
  add("ep", sizes_.expert);
  return text.empty() ? "single" : text;
}

}  // namespace penstock::worker
