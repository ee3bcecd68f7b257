#include "operator/core/objects/merge.hpp"

#include <array>
#include <string_view>
#include <utility>

namespace penstock::ctl {
namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 9> keyed_lists{{
    {"containers", "name"},
    {"initContainers", "name"},
    {"env", "name"},
    {"ports", "containerPort"},
    {"volumeMounts", "mountPath"},
    {"volumes", "name"},
    {"imagePullSecrets", "name"},
    {"resourceClaims", "name"},
    {"claims", "name"},
}};
constexpr std::array<std::string_view, 4> appended_lists{"args", "tolerations", "topologySpreadConstraints", "envFrom"};

std::string_view key_of(std::string_view field) {
  for (const auto& [list, key] : keyed_lists) {
    if (list == field) return key;
  }
  return {};
}

bool is_appended(std::string_view field) {
  for (const auto& list : appended_lists) {
    if (list == field) return true;
  }
  return false;
}

json::Object* find_entry(json::Array& list, std::string_view key, const json::Value& wanted) {
  for (auto& item : list) {
    auto* object = item.if_object();
    const auto* value = object == nullptr ? nullptr : object->if_contains(key);
    if (value != nullptr && *value == wanted) return object;
  }
  return nullptr;
}

void merge_lists(json::Array& generated, const json::Array& user, std::string_view key) {
  for (const auto& item : user) {
    const auto* object = item.if_object();
    const auto* value = object == nullptr ? nullptr : object->if_contains(key);
    auto* same = value == nullptr ? nullptr : find_entry(generated, key, *value);
    if (same == nullptr) {
      generated.push_back(item);
      continue;
    }
    // A variable or a volume is one thing: half of ours and half of theirs would be neither.
    if (key == "name" && (same->contains("value") || same->contains("valueFrom") || !same->contains("image"))) {
      *same = *object;
    } else {
      merge_into(*same, *object);
    }
  }
}

}  // namespace

void merge_into(json::Object& generated, const json::Object& user) {
  for (const auto& [field, value] : user) {
    auto* ours = generated.if_contains(field);
    if (ours == nullptr) {
      generated[field] = value;
    } else if (ours->is_object() && value.is_object()) {
      merge_into(ours->get_object(), value.get_object());
    } else if (ours->is_array() && value.is_array() && !key_of(field).empty()) {
      merge_lists(ours->get_array(), value.get_array(), key_of(field));
    } else if (ours->is_array() && value.is_array() && is_appended(field)) {
      for (const auto& item : value.get_array()) ours->get_array().push_back(item);
    } else {
      *ours = value;
    }
  }
}

}  // namespace penstock::ctl
