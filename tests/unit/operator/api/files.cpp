#include "tests/unit/operator/api/files.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "common/base/check.hpp"
#include "common/config/yaml_value.hpp"

namespace penstock::ctl::api {

std::vector<YamlFile> yaml_files(std::string_view folder) {
  std::vector<YamlFile> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".yaml") continue;
    YamlFile file;
    file.path = entry.path().generic_string();
    std::ifstream in(entry.path());
    std::ostringstream text;
    text << in.rdbuf();
    file.text = text.str();
    auto documents = config::parse_yaml(file.text);
    PENSTOCK_CHECK(documents.has_value(), "path", file.path, "error", documents ? "" : documents.error().message);
    file.documents = std::move(*documents);
    files.push_back(std::move(file));
  }
  std::sort(files.begin(), files.end(), [](const YamlFile& a, const YamlFile& b) { return a.path < b.path; });
  return files;
}

const json::Value& at(const json::Value& value, std::string_view path) {
  const json::Value* current = &value;
  while (!path.empty()) {
    const std::size_t end = std::min(path.find('/'), path.size());
    const std::string_view step = path.substr(0, end);
    path.remove_prefix(std::min(end + 1, path.size()));
    if (const json::Array* array = current->if_array()) {
      current = &array->at(static_cast<std::size_t>(std::stoul(std::string(step))));
    } else {
      current = &current->as_object().at(step);
    }
  }
  return *current;
}

std::string text_at(const json::Value& value, std::string_view path) {
  return std::string(at(value, path).as_string());
}

const json::Object& schema_of(const json::Value& definition) {
  return at(definition, "spec/versions/0/schema/openAPIV3Schema").as_object();
}

}  // namespace penstock::ctl::api
