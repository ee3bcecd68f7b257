#include "operator/reconcilers/stores.hpp"

#include "operator/core/names.hpp"

template class penstock::kube::Store<penstock::ctl::api::LLMService>;
template class penstock::kube::Store<penstock::ctl::api::RoleScaler>;
template class penstock::kube::Store<penstock::ctl::api::WorkerGroup>;
template class penstock::kube::Store<penstock::ctl::api::ModelCache>;
template class penstock::kube::Store<penstock::ctl::api::NodeModelCache>;
template class penstock::kube::Store<penstock::ctl::api::ModelAdapter>;
template class penstock::kube::Store<penstock::ctl::api::ClusterTopology>;
template class penstock::kube::Store<penstock::ctl::Pod>;
template class penstock::kube::Store<penstock::ctl::Node>;
template class penstock::kube::Store<penstock::ctl::Deployment>;
template class penstock::kube::Store<penstock::ctl::Revision>;
template class penstock::kube::Store<penstock::ctl::Child>;

namespace penstock::ctl {

std::string type_name(const kube::ResourceType& type) {
  std::string name(type.plural);
  if (!type.group.empty()) name += "." + std::string(type.group);
  return name;
}

void Stores::add_children(std::initializer_list<kube::ResourceType> types) {
  for (const auto& type : types) children.try_emplace(type_name(type));
}

const kube::Store<Child>* Stores::children_of(const kube::ResourceType& type) const {
  const auto at = children.find(type_name(type));
  return at == children.end() ? nullptr : &at->second;
}

const Revision* revision_of(const api::WorkerGroup& group, const Stores& stores) {
  for (const auto* revision : stores.revisions.in_namespace(group.meta.namespace_)) {
    if (revision->meta.annotations.get(annotation::role_hash) == group.spec.role_hash &&
        revision->meta.labels.get(label::role) == group.spec.role && revision->meta.controller &&
        group.meta.controller && revision->meta.controller->uid == group.meta.controller->uid) {
      return revision;
    }
  }
  return nullptr;
}

}  // namespace penstock::ctl
