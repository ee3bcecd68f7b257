#include "router/discovery/worker_list.hpp"

#include <algorithm>
#include <charconv>

namespace penstock::router {
namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view blanks = " \t\r";
  const std::size_t begin = text.find_first_not_of(blanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

}  // namespace

Result<void> check_worker_address(std::string_view address) {
  const std::size_t colon = address.rfind(':');
  const Error wrong = make_error(ErrorCode::invalid_argument, "'" + std::string(address) + "' must be host:port");
  if (colon == std::string_view::npos || colon == 0) return wrong;
  if (address.find_first_of(" \t/") != std::string_view::npos) return wrong;
  const std::string_view digits = address.substr(colon + 1);
  std::uint16_t port = 0;
  auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (error != std::errc() || end != digits.data() + digits.size() || port == 0) return wrong;
  return {};
}

Result<std::vector<std::string>> parse_worker_list(std::string_view text) {
  std::vector<std::string> addresses;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    line = trimmed(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    if (auto checked = check_worker_address(line); !checked) {
      return make_error(ErrorCode::invalid_argument, "line " + std::to_string(number) + ": " + checked.error().message);
    }
    if (std::find(addresses.begin(), addresses.end(), line) == addresses.end()) addresses.emplace_back(line);
  }
  return addresses;
}

}  // namespace penstock::router
