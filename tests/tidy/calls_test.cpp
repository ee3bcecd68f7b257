// Calls that have one place, or none.
#include <gtest/gtest.h>

#include <regex>

#include "tests/tidy/repository.hpp"

namespace penstock::tidy {
namespace {

struct Banned {
  std::string pattern;
  std::string why;
  std::vector<std::string> allowed;  // folders or files
};

TEST(Calls, TimeRandomnessAndTasksHaveOnePlace) {
  const std::vector<Banned> rules{
      {R"(\bsleep_for\b|\bsleep_until\b|\busleep\s*\(|\bnanosleep\s*\()", "no sleeping", {"common/time"}},
      {R"(steady_clock::now|system_clock::now|high_resolution_clock|\bgettimeofday\s*\(|\bclock_gettime\s*\()",
       "read time through common/time/clock.hpp",
       {"common/time", "bench", "kernels/cpu/peaks.cpp"}},
      {R"(\brand\s*\(\)|\bsrand\s*\(|random_device|mt19937)", "randomness comes from common/time/random.hpp", {}},
      {R"(\bdetached\b)", "every task belongs to a TaskGroup", {}},
      {R"(\bcudaDeviceSynchronize\b)", "wait on a stream or an event", {}},
      {R"(\busing namespace std;)", "no using namespace", {}},
      {R"(\bassert\s*\()", "PENSTOCK_CHECK stays on in release builds", {}},
  };
  for (const File& file : repository()) {
    if (!file.is_cpp() || file.in("tests/tidy")) continue;
    for (const auto& rule : rules) {
      bool allowed = false;
      for (const auto& place : rule.allowed) allowed |= file.in(place) || file.path == place;
      if (allowed) continue;
      const std::regex pattern(rule.pattern);
      for (std::size_t i = 0; i < file.lines.size(); ++i) {
        if (std::regex_search(code_of(file.lines[i]), pattern)) ADD_FAILURE() << at(file, i, rule.why);
      }
    }
  }
}

// gcc 12 destroys twice what such an expression makes: a named value before the co_await is safe. The rule is wider
// than the fault, since a pattern cannot know which types are aggregates; clocks' types have nothing to destroy.
TEST(Calls, NothingIsMadeInACoAwaitExpressionThatGccDestroysTwice) {
  const std::regex aggregate(R"(\b(?!Duration\b|TimePoint\b)[A-Z]\w*\{)");
  for (const File& file : repository()) {
    if (!file.is_cpp() || file.in("tests/tidy")) continue;
    std::string statement;  // without comments and texts
    for (std::size_t i = 0; i < file.lines.size(); ++i) {
      statement += code_of(file.lines[i]) + " ";
      const bool is_over = statement.find_last_of(";{}") == statement.find_last_not_of(' ');
      if (!is_over) continue;
      const std::size_t begin = statement.find("co_await");
      if (begin != std::string::npos) {
        const std::string awaited = statement.substr(begin);
        EXPECT_FALSE(std::regex_search(awaited, aggregate)) << at(file, i, "name the value before the co_await");
        const bool is_branch = statement.substr(0, begin).find('?') != std::string::npos;
        EXPECT_FALSE(is_branch) << at(file, i, "no co_await in a branch of ?:");
      }
      statement.clear();
    }
  }
}

// It ends at the first match. Whoever writes to it then ends with an error, now and then, and under pipefail so does
// the pipe.
TEST(Calls, NoPipeEndsInAGrepThatLeavesEarly) {
  const std::regex pattern(R"([^|]\|\s*grep -[a-z]*q)");
  for (const File& file : repository()) {
    if (file.in("tests/tidy") || file.is_cpp()) continue;
    for (std::size_t i = 0; i < file.lines.size(); ++i) {
      EXPECT_FALSE(std::regex_search(file.lines[i], pattern)) << at(file, i, file.lines[i]);
    }
  }
}

TEST(Calls, HeadersHaveNoUsingNamespace) {
  const std::regex pattern(R"(^using namespace\b)");
  for (const File& file : repository()) {
    if (!file.is_header()) continue;
    for (std::size_t i = 0; i < file.lines.size(); ++i) {
      EXPECT_FALSE(std::regex_search(file.lines[i], pattern)) << at(file, i, "using namespace in a header");
    }
  }
}

}  // namespace
}  // namespace penstock::tidy
