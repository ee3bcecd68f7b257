#include "tests/tidy/repository.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

namespace penstock::tidy {
namespace {

namespace fs = std::filesystem;

const std::set<std::string> skipped_folders{"build",        ".git",        ".cache", "target",
                                            "node_modules", "__pycache__", "data",   "seeds"};
const std::set<std::string> text_extensions{".cpp",  ".hpp", ".c",    ".rs",   ".proto", ".cmake", ".txt", ".md",
                                            ".json", ".sh",  ".yaml", ".toml", ".py",    ".mjs",   ".cu",  ".cuh"};

std::vector<File> read_tree() {
  std::vector<File> files;
  for (auto entry = fs::recursive_directory_iterator("."); entry != fs::recursive_directory_iterator(); ++entry) {
    const std::string name = entry->path().filename().string();
    if (entry->is_directory()) {
      if (skipped_folders.contains(name)) entry.disable_recursion_pending();
      continue;
    }
    if (name == ".git") continue;  // a linked worktree has a file here
    const auto extension = entry->path().extension().string();
    if (!extension.empty() && !text_extensions.contains(extension)) continue;
    File file;
    file.path = entry->path().lexically_relative(".").generic_string();
    std::ifstream in(entry->path());
    for (std::string line; std::getline(in, line);) file.lines.push_back(line);
    files.push_back(std::move(file));
  }
  std::sort(files.begin(), files.end(), [](const File& a, const File& b) { return a.path < b.path; });
  return files;
}

}  // namespace

std::string File::folder() const {
  return fs::path(path).parent_path().generic_string();
}
std::string File::extension() const {
  return fs::path(path).extension().string();
}
bool File::is_header() const {
  return extension() == ".hpp" || extension() == ".cuh";
}
bool File::is_cpp() const {
  return extension() == ".cpp" || extension() == ".cu" || is_header();
}
bool File::in(const std::string& folder) const {
  return path.starts_with(folder + "/");
}

const std::vector<File>& repository() {
  static const std::vector<File> files = read_tree();
  return files;
}

std::string at(const File& file, std::size_t line_index, const std::string& what) {
  return file.path + ":" + std::to_string(line_index + 1) + ": " + what;
}

std::string code_of(const std::string& line) {
  std::string code;
  bool in_string = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (in_string) {
      if (line[i] == '\\') {
        ++i;
      } else if (line[i] == '"') {
        in_string = false;
        code += '"';
      }
      continue;
    }
    if (line[i] == '/' && i + 1 < line.size() && line[i + 1] == '/') break;
    if (line[i] == '"') in_string = true;
    code += line[i];
  }
  return code;
}

}  // namespace penstock::tidy
