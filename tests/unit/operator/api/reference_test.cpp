// docs/reference is made from the schemas and must not be behind them.
#include "docs/reference/reference.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "tests/unit/operator/api/files.hpp"

namespace penstock::ctl::api {
namespace {

std::string read_page(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

TEST(Reference, PagesAreCurrent) {
  std::set<std::string> pages{"README.md"};
  for (const YamlFile& file : yaml_files("crds")) {
    const json::Value& definition = file.documents.front();
    const std::string name = reference::page_name(definition);
    pages.insert(name);
    EXPECT_TRUE(read_page("docs/reference/" + name) == reference::render_page(definition))
        << "docs/reference/" << name << " is not what " << file.path
        << " makes: run `deploy/build release penstock-reference && build/release/bin/penstock-reference`";
  }
  for (const auto& entry : std::filesystem::directory_iterator("docs/reference")) {
    const std::string name = entry.path().filename().string();
    if (entry.path().extension() == ".md") {
      EXPECT_TRUE(pages.contains(name)) << name << " has no schema";
    }
  }
}

TEST(Reference, ShowsTypesBoundsAndDefaults) {
  auto definition = json::parse(R"({"spec":{"group":"g","scope":"Cluster",
    "names":{"kind":"Thing","plural":"things","singular":"thing","shortNames":["t"]},
    "versions":[{"name":"v1","schema":{"openAPIV3Schema":{"type":"object","description":"A thing.","properties":{
      "spec":{"type":"object","description":"Wanted.","required":["name"],"properties":{
        "name":{"type":"string","maxLength":9,"description":"Its name."},
        "count":{"type":"integer","minimum":1,"maximum":3,"default":2,"description":"How many | of them."},
        "mode":{"type":"string","enum":["A","B"],"default":"A","description":"Which.",
          "x-kubernetes-validations":[{"rule":"self == oldSelf","message":"do not change it"}]},
        "parts":{"type":"array","maxItems":4,"description":"Parts.","items":{"type":"object","properties":{
          "on":{"type":"boolean","description":"Whether."}}}}}},
      "status":{"type":"object","description":"Seen.","properties":{}}}}}}]}})");
  ASSERT_TRUE(definition);
  const std::string page = reference::render_page(*definition);
  for (const char* line : {
           "# Thing\n",
           "`g/v1`, in the whole cluster; `kubectl get things`, short name `t`.\n",
           "| `spec.name` | text, at most 9 characters | required | Its name. |\n",
           "| `spec.count` | integer, 1 to 3 | `2` | How many \\| of them. |\n",
           "| `spec.mode` | `A`, `B` | `A` | Which. |\n",
           "| `spec.parts[]` | list, at most 4 items |  | Parts. |\n",
           "| `spec.parts[].on` | true or false |  | Whether. |\n",
           "| `spec.mode` | do not change it |\n",
       }) {
    EXPECT_NE(page.find(line), std::string::npos) << line << page;
  }
}

}  // namespace
}  // namespace penstock::ctl::api
