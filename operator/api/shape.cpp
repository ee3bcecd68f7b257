#include "operator/api/shape.hpp"

#include "operator/api/group_fields.hpp"
#include "operator/api/llm_service_fields.hpp"
#include "operator/api/model_fields.hpp"
#include "operator/api/types.hpp"

namespace penstock::ctl::api {

std::vector<KindShape> kind_shapes() {
  return {{llm_services, shape_of<LLMServiceSpec>(), shape_of<LLMServiceStatus>()},
          {role_scalers, shape_of<RoleScalerSpec>(), shape_of<RoleScalerStatus>()},
          {worker_groups, shape_of<WorkerGroupSpec>(), shape_of<WorkerGroupStatus>()},
          {model_caches, shape_of<ModelCacheSpec>(), shape_of<ModelCacheStatus>()},
          {node_model_caches, shape_of<NodeModelCacheSpec>(), shape_of<NodeModelCacheStatus>()},
          {model_adapters, shape_of<ModelAdapterSpec>(), shape_of<ModelAdapterStatus>()},
          {cluster_topologies, shape_of<ClusterTopologySpec>(), shape_of<ClusterTopologyStatus>()}};
}

}  // namespace penstock::ctl::api
