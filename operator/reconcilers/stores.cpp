#include "operator/reconcilers/stores.hpp"

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

}  // namespace penstock::ctl
