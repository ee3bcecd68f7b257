// Checkpoints on disk for tests of the loader, and edits of their bytes.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

#include "worker/model/loader.hpp"

namespace penstock::worker {

/// A temporary folder, gone with the object.
class TestFolder {
 public:
  TestFolder();
  ~TestFolder();
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

std::string read_bytes(const std::filesystem::path& path);
void write_bytes(const std::filesystem::path& path, std::string_view bytes);

/// Replaces the first `from` at or after `start`; throws if there is none.
void replace_first(std::string& text, std::string_view from, std::string_view to, std::size_t start = 0);
/// The same in a file.
void replace_in(const std::filesystem::path& path, std::string_view from, std::string_view to);

/// The sentence with which a model is refused; "loaded" if it is not.
std::string refusal(const std::filesystem::path& path, const LoadOptions& options = {});

}  // namespace penstock::worker
