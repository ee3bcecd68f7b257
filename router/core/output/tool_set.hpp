// What the parsers need to know of a request's tools: their names, and which JSON types their parameters may have.
// Immutable once read; any thread. Bounded by ApiLimits (tools_max, tools_bytes_max).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "common/json/json.hpp"

namespace penstock::router {

/// What a parameter's schema allows. Neither text nor null nor other: the schema does not say.
struct ParameterKinds {
  bool text = false;
  bool null = false;
  bool other = false;  // number, boolean, object, array

  friend bool operator==(const ParameterKinds&, const ParameterKinds&) = default;
};

class ToolSet {
 public:
  /// From the "function" object of a tool.
  void add(std::string_view name, const json::Object& function);
  bool contains(std::string_view name) const { return tools_.find(name) != tools_.end(); }
  std::size_t size() const { return tools_.size(); }
  bool empty() const { return tools_.empty(); }
  const std::string& first() const { return tools_.begin()->first; }
  ParameterKinds kinds(std::string_view tool, std::string_view parameter) const;

 private:
  using Parameters = std::map<std::string, ParameterKinds, std::less<>>;
  std::map<std::string, Parameters, std::less<>> tools_;
};

}  // namespace penstock::router
