// The names that fields of a request to OpenAI's API may have, as far as they are known here. Pure tables; any thread.
#pragma once

#include <span>
#include <string_view>

namespace penstock::router {

/// Read, or known and without effect here. Others are ignored, and counted.
bool is_known_field(std::string_view name);

/// A field that is refused by name if it is present and not null: to ignore it would change what the answer means.
struct RefusedField {
  std::string_view name;
  std::string_view reason;  // goes on from the name: "is not supported"
};
std::span<const RefusedField> refused_fields();

}  // namespace penstock::router
