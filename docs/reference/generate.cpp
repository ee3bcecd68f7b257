// penstock-reference [REPOSITORY]: writes docs/reference/*.md from crds/*.yaml. Run it after a change of a schema.
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <stdexcept>

#include "common/config/yaml_value.hpp"
#include "docs/reference/reference.hpp"

namespace {

namespace fs = std::filesystem;

std::string read_file(const fs::path& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  if (!in) throw std::runtime_error("cannot read " + path.string());
  return text.str();
}

void generate(const fs::path& repository) {
  for (const auto& entry : fs::directory_iterator(repository / "crds")) {
    if (entry.path().extension() != ".yaml") continue;
    auto documents = penstock::config::parse_yaml(read_file(entry.path()));
    if (!documents) throw std::runtime_error(entry.path().string() + ": " + documents.error().message);
    for (const auto& definition : *documents) {
      const fs::path page = repository / "docs" / "reference" / penstock::reference::page_name(definition);
      std::ofstream out(page);
      out << penstock::reference::render_page(definition);
      if (!out.flush()) throw std::runtime_error("cannot write " + page.string());
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    generate(argc > 1 ? argv[1] : ".");
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "penstock-reference: " << error.what() << "\n";
    return 1;
  }
}
