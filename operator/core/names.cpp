#include "operator/core/names.hpp"

#include <algorithm>
#include <charconv>

#include "common/base/check.hpp"
#include "common/digest/digest.hpp"

namespace penstock::ctl {
namespace {

constexpr std::size_t hash_digits = 8;

}  // namespace

std::string bounded_name(std::initializer_list<std::string_view> parts, std::size_t max) {
  PENSTOCK_CHECK(max > hash_digits + 1, "max", max);
  std::string name;
  for (std::string_view part : parts) {
    if (!name.empty()) name += '-';
    name += part;
  }
  if (name.size() <= max) return name;
  const std::string hash = digest::sha256_hex(name).substr(0, hash_digits);
  name.resize(max - hash_digits - 1);
  // No label or name may have "-" or "." before our separator end up doubled or at a border.
  while (!name.empty() && (name.back() == '-' || name.back() == '.' || name.back() == '_')) name.pop_back();
  return name + "-" + hash;
}

std::string make_group_id(Random& random) {
  constexpr std::string_view alphabet = "0123456789abcdefghjkmnpqrstvwxyz";
  std::string id;
  for (int i = 0; i < 5; ++i) id += alphabet[random.below(alphabet.size())];
  return id;
}

std::string group_name(std::string_view service, std::string_view role, std::string_view id) {
  return bounded_name({service, role}, group_name_max - 1 - id.size()) + "-" + std::string(id);
}

std::string pod_name(std::string_view group, std::uint64_t epoch, std::uint32_t rank) {
  return std::string(group) + "-" + to_base36(epoch) + "-" + std::to_string(rank);
}

std::string to_base36(std::uint64_t number) {
  char text[16];
  const auto end = std::to_chars(text, text + sizeof text, number, 36);
  return std::string(text, end.ptr);
}

std::string label_value(std::string_view text) {
  return bounded_name({text}, label_value_max);
}

std::string topology_label(std::string_view domain) {
  std::string name = "topology.penstock.dev/";
  for (const char letter : domain)
    name += letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
  return name;
}

std::optional<std::uint64_t> parse_decimal(std::string_view text) {
  std::uint64_t number = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), number);
  if (end.ec != std::errc() || end.ptr != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace penstock::ctl
