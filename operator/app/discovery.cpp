#include "operator/app/discovery.hpp"

#include <algorithm>
#include <charconv>

#include "common/kube/model/known_types.hpp"
#include "common/kube/model/object_meta.hpp"

namespace penstock::ctl {
namespace {

/// Whether the list of a group version's resources has this one.
bool lists(const json::Value& resources, std::string_view plural) {
  if (!resources.is_object()) return false;
  const auto* list = kube::array_at(resources.as_object(), {"resources"});
  return list != nullptr && std::any_of(list->begin(), list->end(), [&](const json::Value& one) {
           return one.is_object() && kube::text_at(one.as_object(), {"name"}) == plural;
         });
}

boost::asio::awaitable<Result<bool>> serves(kube::Client& client, kube::ResourceType type) {
  std::string path = "/apis/" + type.api_version();
  auto answer = co_await client.get_path(std::move(path));
  if (answer) co_return lists(*answer, type.plural);
  if (answer.error().is(kube::Failure::not_found)) co_return false;
  co_return kube::to_error(answer.error());
}

/// Container restart rules with the action RestartAllContainers are beta, and on, from 1.36.
boost::asio::awaitable<Result<bool>> restarts_all_containers(kube::Client& client) {
  std::string path = "/version";
  auto answer = co_await client.get_path(std::move(path));
  if (!answer) co_return kube::to_error(answer.error());
  int minor = 0;
  if (answer->is_object()) {
    const auto text = kube::text_at(answer->as_object(), {"minor"}).value_or("0");
    std::from_chars(text.data(), text.data() + text.size(), minor);
  }
  co_return minor >= 36;
}

}  // namespace

boost::asio::awaitable<Result<Capabilities>> discover(kube::Client& client) {
  Capabilities found;
  const std::pair<kube::ResourceType, bool*> questions[] = {
      {kube::pod_groups, &found.pod_groups},           {kube::kai_pod_groups, &found.kai},
      {kube::volcano_pod_groups, &found.volcano},      {kube::resource_claims, &found.resource_claims},
      {kube::compute_domains, &found.compute_domains}, {kube::http_routes, &found.http_routes},
      {kube::inference_pools, &found.inference_pools}};
  for (const auto& [type, served] : questions) {
    auto answer = co_await serves(client, type);
    if (!answer) co_return answer.error();
    *served = *answer;
  }
  auto restarts = co_await restarts_all_containers(client);
  if (!restarts) co_return restarts.error();
  found.restart_all_containers = *restarts;
  co_return found;
}

Capabilities limit_to(Capabilities found, GangChoice choice) {
  switch (choice) {
    case GangChoice::automatic:
      return found;
    case GangChoice::kubernetes:
      found.kai = found.volcano = false;
      return found;
    case GangChoice::kai:
      found.pod_groups = found.volcano = false;
      return found;
    case GangChoice::volcano:
      found.pod_groups = found.kai = false;
      return found;
    case GangChoice::none:
      found.pod_groups = found.kai = found.volcano = false;
      return found;
  }
  return found;
}

}  // namespace penstock::ctl
