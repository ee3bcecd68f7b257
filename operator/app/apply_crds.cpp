#include "operator/app/apply_crds.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "common/async/deadline.hpp"
#include "common/config/yaml_value.hpp"
#include "common/kube/model/known_types.hpp"

namespace penstock::ctl {
namespace {

constexpr Duration poll_interval = std::chrono::milliseconds(200);

bool is_established(const json::Value& definition) {
  const auto* conditions = kube::array_at(definition.as_object(), {"status", "conditions"});
  return conditions != nullptr && std::any_of(conditions->begin(), conditions->end(), [](const json::Value& one) {
           return one.is_object() && kube::text_at(one.as_object(), {"type"}) == "Established" &&
                  kube::text_at(one.as_object(), {"status"}) == "True";
         });
}

}  // namespace

Result<std::vector<json::Object>> read_definitions(const std::string& folder) {
  std::error_code failure;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder, failure)) {
    if (entry.path().extension() == ".yaml") files.push_back(entry.path());
  }
  if (failure) return make_error(ErrorCode::not_found, "cannot read " + folder + ": " + failure.message());
  std::sort(files.begin(), files.end());
  std::vector<json::Object> definitions;
  for (const auto& path : files) {
    std::ifstream file(path, std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    auto documents = config::parse_yaml(text);
    if (!documents) return make_error(ErrorCode::invalid_argument, path.string() + ": " + documents.error().message);
    for (auto& document : *documents) {
      if (!document.is_object() || kube::text_at(document.as_object(), {"kind"}) != "CustomResourceDefinition") {
        return make_error(ErrorCode::invalid_argument, path.string() + " holds something else than a definition");
      }
      definitions.push_back(std::move(document.as_object()));
    }
  }
  if (definitions.empty()) return make_error(ErrorCode::not_found, "there is no definition in " + folder);
  return definitions;
}

boost::asio::awaitable<Result<void>> apply_definitions(kube::Client& client, std::vector<json::Object> definitions,
                                                       Duration timeout, log::Logger logger) {
  for (json::Object& definition : definitions) {
    const std::string name(kube::text_at(definition, {"metadata", "name"}).value_or(""));
    kube::Apply apply;
    apply.type = kube::custom_resource_definitions;
    apply.key = kube::Key{"", name};
    apply.body = std::move(definition);
    apply.field_manager = "penstock-operator";
    apply.force = kube::Force::yes;  // nobody else owns a field of ours
    const kube::Write write = std::move(apply);
    auto answer = co_await client.execute(write);
    if (!answer) {
      co_return make_error(ErrorCode::unavailable, "cannot apply " + name + ": " + kube::to_string(answer.error()));
    }
    const SteadyClock clock;
    const TimePoint deadline = clock.now() + timeout;
    while (!is_established(*answer)) {
      if (clock.now() > deadline) {
        co_return make_error(ErrorCode::deadline_exceeded, name + " is not served within the time allowed");
      }
      co_await async::pause(poll_interval);
      const kube::Key key{"", name};
      answer = co_await client.get(kube::custom_resource_definitions, key);
      if (!answer) co_return kube::to_error(answer.error());
    }
    logger.info("definition is served", {{"object", name}});
  }
  co_return Result<void>();
}

}  // namespace penstock::ctl
