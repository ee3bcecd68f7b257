#include "tests/unit/worker/model/support.hpp"

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace penstock::worker {

TestFolder::TestFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "penstock-model-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
  path_ = name;
}

TestFolder::~TestFolder() {
  std::filesystem::remove_all(path_);
}

std::string read_bytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path.string());
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void write_bytes(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream file(path, std::ios::binary);
  file << bytes;
  if (!file.flush()) throw std::runtime_error("cannot write " + path.string());
}

void replace_first(std::string& text, std::string_view from, std::string_view to, std::size_t start) {
  const std::size_t at = text.find(from, start);
  if (at == std::string::npos) throw std::runtime_error("nothing to replace: " + std::string(from));
  text.replace(at, from.size(), to);
}

void replace_in(const std::filesystem::path& path, std::string_view from, std::string_view to) {
  std::string text = read_bytes(path);
  replace_first(text, from, to);
  write_bytes(path, text);
}

std::string refusal(const std::filesystem::path& path, const LoadOptions& options) {
  const auto model = load_model(path, options);
  return model ? "loaded" : model.error().message;
}

}  // namespace penstock::worker
