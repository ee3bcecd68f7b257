// Every file has a home, a first sentence, and nothing that does not belong in the project.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <regex>

#include "tests/tidy/repository.hpp"

namespace penstock::tidy {
namespace {

TEST(Files, EverySourceIsInATarget) {
  std::map<std::string, std::string> cmake_by_folder;
  for (const File& file : repository()) {
    if (!file.path.ends_with("CMakeLists.txt")) continue;
    std::string text;
    for (const auto& line : file.lines) text += line + "\n";
    cmake_by_folder[file.folder()] = text;
  }
  for (const File& file : repository()) {
    if (!file.is_cpp() || file.is_header()) continue;
    // The nearest CMakeLists.txt above must name the file.
    bool listed = false;
    for (std::filesystem::path folder = file.folder(); !folder.empty(); folder = folder.parent_path()) {
      auto found = cmake_by_folder.find(folder.generic_string());
      if (found == cmake_by_folder.end()) continue;
      const auto relative = std::filesystem::path(file.path).lexically_relative(folder).generic_string();
      listed = found->second.find(relative) != std::string::npos ||
               found->second.find(std::filesystem::path(file.path).stem().string()) != std::string::npos;
      break;
    }
    EXPECT_TRUE(listed) << file.path << " is in no target";
  }
}

TEST(Files, HeadersSayWhatTheyAreFor) {
  for (const File& file : repository()) {
    if (!file.is_header()) continue;
    ASSERT_FALSE(file.lines.empty()) << file.path;
    EXPECT_TRUE(file.lines[0].starts_with("// ")) << file.path << ": the first line must be a comment";
    bool once = false;
    for (const auto& line : file.lines) once |= line == "#pragma once";
    EXPECT_TRUE(once) << file.path << ": #pragma once is missing";
  }
}

// Longer files, each with its reason.
const std::map<std::string, std::size_t> long_files{};

TEST(Files, DeviceCodeIsInKernels) {
  for (const File& file : repository()) {
    if (file.extension() != ".cu" && file.extension() != ".cuh") continue;
    EXPECT_TRUE(file.in("kernels/cuda")) << file.path;
  }
}

TEST(Files, AreShort) {
  constexpr std::size_t lines_max = 500;
  for (const File& file : repository()) {
    if (!file.is_cpp() && file.extension() != ".rs") continue;
    const auto exception = long_files.find(file.path);
    const std::size_t limit = exception == long_files.end() ? lines_max : exception->second;
    EXPECT_LE(file.lines.size(), limit) << file.path;
  }
}

TEST(Files, DecisionRecordsHaveNumbersOfTheirOwn) {
  std::map<std::string, std::string> by_number;
  for (const File& file : repository()) {
    if (!file.in("docs/adr") || file.path.ends_with("README.md")) continue;
    const std::string name = std::filesystem::path(file.path).filename().string();
    const auto [other, is_new] = by_number.emplace(name.substr(0, name.find('-')), file.path);
    EXPECT_TRUE(is_new) << file.path << " has the number of " << other->second;
    ASSERT_FALSE(file.lines.empty()) << file.path;
    EXPECT_EQ(file.lines[0].substr(0, file.lines[0].find('.')), "# " + std::to_string(std::stoi(name))) << file.path;
  }
  EXPECT_FALSE(by_number.empty());
}

TEST(Files, OpenWorkNamesItsIssue) {
  const std::regex open_work(R"(\b(TODO|FIXME|XXX)\b)"), with_issue(R"(\bTODO\(#\d+\))");
  for (const File& file : repository()) {
    if (file.in("tests/tidy") || file.extension() == ".md") continue;
    for (std::size_t i = 0; i < file.lines.size(); ++i) {
      if (std::regex_search(file.lines[i], open_work)) {
        EXPECT_TRUE(std::regex_search(file.lines[i], with_issue)) << at(file, i, file.lines[i]);
      }
    }
  }
}

TEST(Files, NameNoMachineAndNoRegistry) {
  const std::regex pattern(
      R"((^|[^a-z])/(root|work|home/[a-z]+)/|https?://[a-z0-9.-]*(pypi|crates|npmjs|golang|maven|debian)\.)");
  for (const File& file : repository()) {
    if (file.in("tests/tidy") || file.path.ends_with("package-lock.json")) continue;
    for (std::size_t i = 0; i < file.lines.size(); ++i) {
      EXPECT_FALSE(std::regex_search(file.lines[i], pattern)) << at(file, i, file.lines[i]);
    }
  }
}

}  // namespace
}  // namespace penstock::tidy
