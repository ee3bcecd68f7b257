// The tree as the tidy tests see it: our own text files with their lines. Read once; root is the working directory.
#pragma once

#include <string>
#include <vector>

namespace penstock::tidy {

struct File {
  std::string path;  // relative to the root, with '/'
  std::vector<std::string> lines;

  std::string folder() const;     // "worker/core/kv"
  std::string extension() const;  // ".cpp"
  bool is_header() const;
  bool is_cpp() const;
  bool in(const std::string& folder) const;  // that folder or one below
};

/// Sources, scripts, CMake and docs; without build trees, caches and dot folders.
const std::vector<File>& repository();

/// A finding that the test prints: "path:line: text".
std::string at(const File& file, std::size_t line_index, const std::string& what);

/// The line without its // comment and without the contents of string literals.
std::string code_of(const std::string& line);

}  // namespace penstock::tidy
