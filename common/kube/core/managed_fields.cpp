#include "common/kube/core/managed_fields.hpp"

namespace penstock::kube {
namespace {

// As the API server writes it. Within a string the quotes would be escaped, so this is a key; and the first of that
// name is the metadata's, which stands before anything that a user writes.
constexpr std::string_view mark = "\"managedFields\":[";

/// Behind the bracket that closes the list whose inside begins at `at`; npos if it isn't closed.
std::size_t end_of_list(std::string_view text, std::size_t at) {
  std::size_t depth = 1;
  bool in_string = false;
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (in_string) {
      if (c == '\\') {
        ++at;
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[') {
      ++depth;
    } else if (c == ']' && --depth == 0) {
      return at + 1;
    }
  }
  return std::string_view::npos;
}

}  // namespace

std::string_view ManagedFieldsFilter::without(std::string_view object) {
  const std::size_t key = object.find(mark);
  if (key == std::string_view::npos) return object;
  const std::size_t begin = key + mark.size();
  const std::size_t end = end_of_list(object, begin);
  if (end == std::string_view::npos) return object;
  buffer_.assign(object.substr(0, begin));
  buffer_.append(object.substr(end - 1));
  return buffer_;
}

}  // namespace penstock::kube
