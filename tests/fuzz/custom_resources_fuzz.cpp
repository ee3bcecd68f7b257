// YAML text that may hold custom resources: objects or sentences; a spec that was read is written so that it reads the
// same.
#include <boost/json/serialize.hpp>

#include "common/base/check.hpp"
#include "common/config/yaml_value.hpp"
#include "operator/api/cluster_topology.hpp"
#include "operator/api/llm_service.hpp"
#include "operator/api/model_adapter.hpp"
#include "operator/api/model_cache.hpp"
#include "operator/api/role_scaler.hpp"
#include "operator/api/worker_group.hpp"
#include "tests/fuzz/input.hpp"

namespace penstock::fuzz {
namespace {

template <class Parse>
void check(const json::Value& object, Parse parse) {
  auto first = parse(object);
  if (!first) {
    PENSTOCK_CHECK(!first.error().reason.empty());
    return;
  }
  json::Object written;
  written["metadata"] = object.at("metadata");
  written["spec"] = ctl::api::to_json(first->spec);
  written["status"] = ctl::api::to_json(first->status);
  auto second = parse(json::Value(written));
  PENSTOCK_CHECK(second.has_value(), boost::json::serialize(written), second ? "" : second.error().path);
  PENSTOCK_CHECK(ctl::api::to_json(second->spec) == written.at("spec"), boost::json::serialize(written));
  PENSTOCK_CHECK(ctl::api::to_json(second->status) == written.at("status"), boost::json::serialize(written));
}

}  // namespace
}  // namespace penstock::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace penstock;
  auto documents = config::parse_yaml({reinterpret_cast<const char*>(data), size});
  if (!documents) {
    PENSTOCK_CHECK(!documents.error().message.empty());
    return 0;
  }
  for (const json::Value& object : *documents) {
    fuzz::check(object, ctl::api::parse_llm_service);
    fuzz::check(object, ctl::api::parse_role_scaler);
    fuzz::check(object, ctl::api::parse_worker_group);
    fuzz::check(object, ctl::api::parse_model_cache);
    fuzz::check(object, ctl::api::parse_node_model_cache);
    fuzz::check(object, ctl::api::parse_model_adapter);
    fuzz::check(object, ctl::api::parse_cluster_topology);
  }
  return 0;
}
