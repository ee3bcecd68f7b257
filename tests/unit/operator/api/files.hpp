// The YAML files that the tests of the custom resources read: schemas, samples, bad objects. Test threads only.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/json/json.hpp"

namespace penstock::ctl::api {

struct YamlFile {
  std::string path;
  std::string text;
  std::vector<json::Value> documents;
};

/// All .yaml files of a folder of the repository, by name. Fails the test, and ends the process, if one is no YAML.
std::vector<YamlFile> yaml_files(std::string_view folder);

/// A value at members and indexes, such as "spec/versions/0"; ends the process if it is not there.
const json::Value& at(const json::Value& value, std::string_view path);
std::string text_at(const json::Value& value, std::string_view path);
/// openAPIV3Schema of a CustomResourceDefinition.
const json::Object& schema_of(const json::Value& definition);

}  // namespace penstock::ctl::api
