// Who may include whom. The folder tree shows the architecture; these rules keep it true.
#include <gtest/gtest.h>

#include <optional>
#include <regex>

#include "tests/tidy/repository.hpp"

namespace penstock::tidy {
namespace {

std::optional<std::string> included(const std::string& line) {
  static const std::regex pattern(R"(^\s*#\s*include\s*[<"]([^>"]+)[>"])");
  std::smatch match;
  if (!std::regex_search(line, match, pattern)) return std::nullopt;
  return match[1].str();
}

template <class Rule>
void for_each_include(Rule rule) {
  for (const File& file : repository()) {
    if (!file.is_cpp()) continue;
    for (std::size_t i = 0; i < file.lines.size(); ++i) {
      if (auto path = included(file.lines[i])) rule(file, i, *path);
    }
  }
}

bool under(const std::string& path, const std::string& folder) {
  return path.starts_with(folder + "/");
}

TEST(Includes, ProgramsNeverIncludeEachOther) {
  const std::vector<std::string> programs{"worker", "router", "operator"};
  for_each_include([&](const File& file, std::size_t line, const std::string& path) {
    for (const auto& one : programs) {
      for (const auto& other : programs) {
        if (one != other && file.in(one) && under(path, other)) ADD_FAILURE() << at(file, line, path);
      }
    }
    if (file.in("common") || file.in("kernels")) {
      for (const auto& program : programs) EXPECT_FALSE(under(path, program)) << at(file, line, path);
    }
    if (file.in("common")) {
      EXPECT_FALSE(under(path, "kernels")) << at(file, line, path);
    }
    if (!file.in("tests") && !file.in("bench")) {
      EXPECT_FALSE(under(path, "tests")) << at(file, line, path);
    }
  });
}

TEST(Includes, CoresArePure) {
  const std::vector<std::string> allowed_common{"common/base",       "common/digest",   "common/time",
                                                "common/protocol",   "common/text",     "common/json",
                                                "common/kube/model", "common/kube/core"};
  for_each_include([&](const File& file, std::size_t line, const std::string& path) {
    for (const std::string program : {"worker", "router", "operator"}) {
      if (!file.in(program + "/core")) continue;
      EXPECT_FALSE(path.starts_with("boost/asio") || path.starts_with("boost/beast") || path.starts_with("sys/"))
          << at(file, line, path);
      EXPECT_FALSE(path == "thread" || path == "mutex" || path == "fstream" || path == "filesystem")
          << at(file, line, path);
      if (under(path, "common")) {
        bool allowed = false;
        for (const auto& folder : allowed_common) allowed |= under(path, folder);
        EXPECT_TRUE(allowed) << at(file, line, path);
      }
      // The engine's value types (batches, transfer events) are what the worker's cores plan in.
      const bool engine_values = path == "worker/engine/executor.hpp" || path == "worker/engine/kv_transfer.hpp" ||
                                 path == "worker/engine/kv_transport.hpp";
      // The custom resources are plain structs.
      const bool resources = under(path, "operator/api");
      if (under(path, program)) {
        EXPECT_TRUE(under(path, program + "/core") || engine_values || resources) << at(file, line, path);
      }
    }
  });
}

TEST(Includes, KubeModelAndCoreArePure) {
  const std::vector<std::string> allowed_common{"common/base", "common/time", "common/json", "common/kube/model"};
  for_each_include([&](const File& file, std::size_t line, const std::string& path) {
    const bool model = file.in("common/kube/model"), core = file.in("common/kube/core");
    if (!model && !core) return;
    EXPECT_FALSE(path.starts_with("boost/asio") || path.starts_with("boost/beast") || path.starts_with("sys/"))
        << at(file, line, path);
    EXPECT_FALSE(path == "thread" || path == "mutex" || path == "fstream" || path == "filesystem")
        << at(file, line, path);
    if (!under(path, "common")) return;
    bool allowed = core && under(path, "common/kube/core");
    for (const auto& folder : allowed_common) allowed |= under(path, folder);
    EXPECT_TRUE(allowed) << at(file, line, path);
  });
}

struct Confined {
  std::string prefix;                // of the include
  std::vector<std::string> folders;  // where it may appear
};

TEST(Includes, OneLibraryOneFolder) {
  const std::vector<Confined> rules{
      {"yaml-cpp/", {"common/config"}},
      {"CLI/", {"common/config", "bench", "tests/kube"}},
      {"prometheus/", {"common/metrics"}},
      {"spdlog/", {"common/log"}},
      {"google/protobuf/", {"common/protocol"}},
      {"wire.pb.h", {"common/protocol"}},
      {"ucp/", {"worker/transfer/ucx"}},
      {"ucs/", {"worker/transfer/ucx"}},
      {"nccl", {"worker/comm"}},
      {"cuda", {"kernels", "worker/executor/cuda", "worker/comm", "worker/transfer"}},
      {"boost/beast", {"common/http", "common/async"}},
      {"boost/asio",
       {"common/async", "common/http", "common/kube/client", "worker/server", "worker/app", "worker/transfer",
        "worker/main.cpp", "router/server", "router/proxy", "router/backend", "router/discovery", "router/app",
        "router/main.cpp", "operator/runtime", "operator/app", "operator/agent", "operator/main.cpp", "tests",
        "bench"}},
      {"openssl/", {"common/async", "common/digest", "tests"}},
  };
  for_each_include([&](const File& file, std::size_t line, const std::string& path) {
    for (const auto& rule : rules) {
      if (!path.starts_with(rule.prefix)) continue;
      bool allowed = false;
      for (const auto& folder : rule.folders) allowed |= file.in(folder) || file.path == folder;
      EXPECT_TRUE(allowed) << at(file, line, path);
    }
  });
}

TEST(Includes, OnlyAppNamesImplementations) {
  const std::vector<std::string> implementations{"worker/executor/", "worker/transfer/ucx/",
                                                 "worker/transfer/loopback/", "worker/transfer/faulty/",
                                                 "worker/transfer/cuda/"};
  for_each_include([&](const File& file, std::size_t line, const std::string& path) {
    if (!file.in("worker")) return;
    for (const auto& implementation : implementations) {
      const bool own = file.path.starts_with(implementation);
      if (path.starts_with(implementation) && !own && !file.in("worker/app") && !file.in("worker/executor")) {
        ADD_FAILURE() << at(file, line, path);
      }
    }
  });
}

}  // namespace
}  // namespace penstock::tidy
