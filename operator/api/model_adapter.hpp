// ModelAdapter: one LoRA of one service. Router and workers pull it; the operator only reports how far they are.
// Plain values; any thread.
#pragma once

#include <boost/json/value.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/json/json.hpp"
#include "operator/api/common.hpp"

namespace penstock::ctl::api {

struct ModelAdapterSpec {
  std::string service_name;
  std::string adapter_name;  // the model name that clients use; empty: the name of the object
  std::string uri;
  std::string revision;
  std::int32_t rank = 16;
  CountOrAll placement;  // groups of each worker role that load it
  bool pinned = false;   // never evicted for another adapter
};

struct ModelAdapterStatus {
  std::int64_t observed_generation = 0;
  kube::Conditions conditions;
  std::int32_t endpoints_wanted = 0;
  std::int32_t endpoints_loaded = 0;
  std::string digest;
};

struct ModelAdapter {
  kube::ObjectMeta meta;
  ModelAdapterSpec spec;
  ModelAdapterStatus status;
};

json::FieldResult<ModelAdapter> parse_model_adapter(const boost::json::value& object);
boost::json::object to_json(const ModelAdapterSpec& spec);
boost::json::object to_json(const ModelAdapterStatus& status);

}  // namespace penstock::ctl::api
