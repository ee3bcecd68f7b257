#include "common/config/key_file.hpp"

#include <algorithm>
#include <fstream>
#include <stdexcept>

namespace penstock::config {
namespace {

constexpr std::size_t key_bytes_max = 64 << 10;

[[noreturn]] void refuse(const std::filesystem::path& path, std::string_view option, const std::string& why) {
  throw std::runtime_error("--" + std::string(option) + " " + path.string() + " " + why);
}

}  // namespace

std::string read_key_file(const std::filesystem::path& path, std::size_t bytes_min, std::string_view option) {
  std::ifstream file(path, std::ios::binary);
  std::string key(key_bytes_max + 1, '\0');
  file.read(key.data(), static_cast<std::streamsize>(key.size()));
  if (!file.is_open() || file.bad()) refuse(path, option, "cannot be read");
  key.resize(static_cast<std::size_t>(file.gcount()));
  if (key.size() > key_bytes_max) refuse(path, option, "has more than " + std::to_string(key_bytes_max) + " bytes");
  if (key.size() < bytes_min) refuse(path, option, "has fewer than " + std::to_string(bytes_min) + " bytes");
  return key;
}

std::array<std::uint8_t, 32> read_key_file_256(const std::filesystem::path& path, std::string_view option) {
  std::array<std::uint8_t, 32> key{};
  const std::string bytes = read_key_file(path, key.size(), option);
  if (bytes.size() != key.size()) refuse(path, option, "must have exactly 32 bytes");
  std::copy(bytes.begin(), bytes.end(), key.begin());
  return key;
}

}  // namespace penstock::config
