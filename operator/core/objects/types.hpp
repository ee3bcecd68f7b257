// Kinds that only the operator makes, beside those in common/kube/model/known_types.hpp. Constants.
#pragma once

#include "common/kube/model/known_types.hpp"

namespace penstock::ctl {

inline constexpr kube::ResourceType rbac_roles{"rbac.authorization.k8s.io", "v1", "Role", "roles"};
inline constexpr kube::ResourceType rbac_role_bindings{"rbac.authorization.k8s.io", "v1", "RoleBinding",
                                                       "rolebindings"};

}  // namespace penstock::ctl
