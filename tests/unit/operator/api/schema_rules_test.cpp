// Every rule of the schemas says what to change, and has a bad object that must be refused by it. The objects are
// applied to a real API server elsewhere; here their list is held complete.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/operator/api/files.hpp"

namespace penstock::ctl::api {
namespace {

struct Rule {
  std::string place;  // "LLMService.spec.roles[]"
  std::string message;
};

void collect(const json::Value& node, const std::string& place, std::vector<Rule>& rules) {
  const json::Object* schema = node.if_object();
  if (schema == nullptr) return;
  if (const json::Value* list = schema->if_contains("x-kubernetes-validations")) {
    for (const json::Value& rule : list->as_array()) {
      EXPECT_TRUE(rule.as_object().contains("message")) << place << ": " << rule;
      rules.push_back({place, text_at(rule, "message")});
    }
  }
  if (const json::Value* properties = schema->if_contains("properties")) {
    for (const auto& property : properties->as_object()) {
      collect(property.value(), place + "." + std::string(property.key()), rules);
    }
  }
  if (const json::Value* items = schema->if_contains("items")) collect(*items, place + "[]", rules);
}

std::vector<Rule> all_rules() {
  std::vector<Rule> rules;
  for (const YamlFile& file : yaml_files("crds")) {
    const json::Value& definition = file.documents.front();
    const std::string kind = text_at(definition, "spec/names/kind");
    collect(at(definition, "spec/versions/0/schema/openAPIV3Schema"), kind, rules);
  }
  return rules;
}

/// The text after "# expect: " in the first lines of a bad object's file.
std::string expectation(const YamlFile& file) {
  constexpr std::string_view mark = "# expect: ";
  if (!file.text.starts_with(mark)) return {};
  return file.text.substr(mark.size(), file.text.find('\n') - mark.size());
}

TEST(SchemaRules, EachHasABadObject) {
  const std::vector<YamlFile> files = yaml_files("tests/data/crds/bad");
  for (const Rule& rule : all_rules()) {
    const bool has_one = std::any_of(files.begin(), files.end(), [&](const YamlFile& file) {
      const std::string kind = text_at(file.documents.front(), "kind");
      const std::string expected = expectation(file);
      return rule.place.starts_with(kind) && !expected.empty() && rule.message.find(expected) != std::string::npos;
    });
    EXPECT_TRUE(has_one) << rule.place << " has no object in tests/data/crds/bad for: " << rule.message;
  }
}

TEST(SchemaRules, BadObjectsSayWhatIsExpected) {
  for (const YamlFile& file : yaml_files("tests/data/crds/bad")) {
    EXPECT_FALSE(expectation(file).empty()) << file.path << ": begin with '# expect: part of the message'";
    // Two documents are an object and a change of it.
    EXPECT_LE(file.documents.size(), 2u) << file.path;
    if (file.documents.size() == 2) {
      EXPECT_EQ(at(file.documents[0], "metadata/name"), at(file.documents[1], "metadata/name")) << file.path;
    }
  }
}

TEST(SchemaRules, MessagesAreSentencesForPeople) {
  for (const Rule& rule : all_rules()) {
    EXPECT_GE(rule.message.size(), 20u) << rule.place;
    EXPECT_LE(rule.message.size(), 300u) << rule.place << ": " << rule.message;
    EXPECT_EQ(rule.message.find('\n'), std::string::npos) << rule.place << ": " << rule.message;
  }
}

}  // namespace
}  // namespace penstock::ctl::api
