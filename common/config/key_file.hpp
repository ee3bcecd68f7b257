// Secret keys from files, read once at start. Any thread; a file has at most 64 KiB. They throw
// std::runtime_error with one sentence that names the option.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace penstock::config {

/// All bytes of the file, at least `bytes_min`.
std::string read_key_file(const std::filesystem::path& path, std::size_t bytes_min, std::string_view option);
/// A key of exactly 32 bytes.
std::array<std::uint8_t, 32> read_key_file_256(const std::filesystem::path& path, std::string_view option);

}  // namespace penstock::config
