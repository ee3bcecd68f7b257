#include "operator/api/model_fields.hpp"

namespace penstock::ctl::api {

json::FieldResult<ModelCache> parse_model_cache(const json::Value& object) {
  return read_resource<ModelCache>(object);
}
json::Object to_json(const ModelCacheSpec& spec) {
  return write_object(spec);
}
json::Object to_json(const ModelCacheStatus& status) {
  return write_object(status);
}

json::FieldResult<NodeModelCache> parse_node_model_cache(const json::Value& object) {
  return read_resource<NodeModelCache>(object);
}
json::Object to_json(const NodeModelCacheSpec& spec) {
  return write_object(spec);
}
json::Object to_json(const NodeModelCacheStatus& status) {
  return write_object(status);
}

json::FieldResult<ModelAdapter> parse_model_adapter(const json::Value& object) {
  return read_resource<ModelAdapter>(object);
}
json::Object to_json(const ModelAdapterSpec& spec) {
  return write_object(spec);
}
json::Object to_json(const ModelAdapterStatus& status) {
  return write_object(status);
}

json::FieldResult<ClusterTopology> parse_cluster_topology(const json::Value& object) {
  return read_resource<ClusterTopology>(object);
}
json::Object to_json(const ClusterTopologySpec& spec) {
  return write_object(spec);
}
json::Object to_json(const ClusterTopologyStatus& status) {
  return write_object(status);
}

}  // namespace penstock::ctl::api
