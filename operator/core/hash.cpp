#include "operator/core/hash.hpp"

#include <algorithm>
#include <array>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "common/digest/digest.hpp"
#include "common/json/writer.hpp"

namespace penstock::ctl {
namespace {

constexpr std::string_view format = "h1:";

/// Lists with map semantics in the Kubernetes API, by the name of their field, and the field that is their key.
constexpr std::array<std::pair<std::string_view, std::string_view>, 11> list_maps{{
    {"containers", "name"},
    {"volumes", "name"},
    {"volumeMounts", "mountPath"},
    {"volumeDevices", "devicePath"},
    {"ports", "containerPort"},
    {"imagePullSecrets", "name"},
    {"hostAliases", "ip"},
    {"claims", "name"},
    {"resourceClaims", "name"},
    {"schedulingGates", "name"},
    {"env", "name"},
}};

bool refers_to_another(const boost::json::array& env) {
  for (const auto& entry : env) {
    const auto* object = entry.if_object();
    const auto* value = object == nullptr ? nullptr : object->if_contains("value");
    if (value != nullptr && value->is_string() && value->get_string().find("$(") != boost::json::string::npos) {
      return true;
    }
  }
  return false;
}

std::optional<std::string_view> map_key(std::string_view field, const boost::json::array& list) {
  for (const auto& [name, key] : list_maps) {
    if (name != field) continue;
    if (field == "env" && refers_to_another(list)) return std::nullopt;
    return key;
  }
  return std::nullopt;
}

void append(std::string& out, const boost::json::value& value, std::string_view field);

void append(std::string& out, const boost::json::object& object) {
  std::vector<std::string_view> keys;
  keys.reserve(object.size());
  for (const auto& entry : object) {
    if (!entry.value().is_null()) keys.push_back(entry.key());
  }
  std::sort(keys.begin(), keys.end());
  out += '{';
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (i != 0) out += ',';
    json::append_quoted(out, keys[i]);
    out += ':';
    append(out, object.at(keys[i]), keys[i]);
  }
  out += '}';
}

void append(std::string& out, const boost::json::array& list, std::string_view field) {
  std::vector<std::pair<std::string, std::string>> items;  // (key, text)
  items.reserve(list.size());
  const auto key = map_key(field, list);
  bool keyed = key.has_value();
  for (const auto& item : list) {
    std::string text, key_text;
    append(text, item, {});
    const auto* object = item.if_object();
    const auto* at = keyed && object != nullptr ? object->if_contains(*key) : nullptr;
    if (at == nullptr) {
      keyed = false;  // not the list it looked like: its order stays
    } else {
      append(key_text, *at, {});
    }
    items.emplace_back(std::move(key_text), std::move(text));
  }
  // Equal keys (a port in TCP and UDP) are told apart by the whole text.
  if (keyed) std::sort(items.begin(), items.end());
  out += '[';
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i != 0) out += ',';
    out += items[i].second;
  }
  out += ']';
}

void append(std::string& out, const boost::json::value& value, std::string_view field) {
  switch (value.kind()) {
    case boost::json::kind::null:
      out += "null";
      return;
    case boost::json::kind::bool_:
      out += value.get_bool() ? "true" : "false";
      return;
    case boost::json::kind::int64:
      json::append_number(out, value.get_int64());
      return;
    case boost::json::kind::uint64:
      json::append_number(out, value.get_uint64());
      return;
    case boost::json::kind::double_: {
      const double number = value.get_double();
      // 1.0 and 1 are one number to every JSON writer that may sit between the user and us.
      if (std::trunc(number) == number && std::abs(number) < 9e15) {
        json::append_number(out, static_cast<std::int64_t>(number));
      } else {
        json::append_number(out, number);
      }
      return;
    }
    case boost::json::kind::string:
      json::append_quoted(out, std::string_view(value.get_string()));
      return;
    case boost::json::kind::array:
      append(out, value.get_array(), field);
      return;
    case boost::json::kind::object:
      append(out, value.get_object());
      return;
  }
}

}  // namespace

std::string canonical_json(const boost::json::value& value) {
  std::string out;
  append(out, value, {});
  return out;
}

std::string canonical_hash(const boost::json::value& value) {
  return std::string(format) + digest::sha256_hex(canonical_json(value));
}

std::string short_hash(std::string_view hash) {
  const auto colon = hash.find(':');
  if (colon != std::string_view::npos) hash.remove_prefix(colon + 1);
  return std::string(hash.substr(0, 10));
}

bool is_known_format(std::string_view hash) {
  return hash.starts_with(format);
}

}  // namespace penstock::ctl
