#include "common/config/yaml_value.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "common/config/yaml_documents.hpp"

namespace penstock::config {
namespace {

bool is_one_of(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), text) != words.end();
}

template <class T>
std::optional<T> number(std::string_view text) {
  T value{};
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// The core schema's reading of a scalar without quotes.
boost::json::value plain_scalar(std::string_view text) {
  if (is_one_of(text, {"", "~", "null", "Null", "NULL"})) return nullptr;
  if (is_one_of(text, {"true", "True", "TRUE"})) return true;
  if (is_one_of(text, {"false", "False", "FALSE"})) return false;
  // Only what begins like a number is one: from_chars would take "inf" and "nan".
  const std::string_view digits = text.substr(text[0] == '-' || text[0] == '+' ? 1 : 0);
  if (digits.empty() || digits[0] < '0' || digits[0] > '9') return boost::json::value(text);
  const std::string_view unsigned_plus = text[0] == '+' ? digits : text;
  if (auto integer = number<std::int64_t>(unsigned_plus)) return *integer;
  if (auto integer = number<std::uint64_t>(unsigned_plus)) return *integer;
  if (auto real = number<double>(unsigned_plus); real && std::isfinite(*real)) return *real;
  return boost::json::value(text);
}

class Converter {
 public:
  explicit Converter(const YamlLimits& limits) : limits_(limits) {}

  Result<boost::json::value> convert(const YAML::Node& node, std::size_t depth) {
    if (depth > limits_.depth_max) return refuse(node, "is nested too deep", ErrorCode::resource_exhausted);
    if (++values_ > limits_.values_max) return refuse(node, "has too many values", ErrorCode::resource_exhausted);
    switch (node.Type()) {
      case YAML::NodeType::Undefined:
      case YAML::NodeType::Null:
        return boost::json::value();
      case YAML::NodeType::Scalar:
        return node.Tag() == "?" || node.Tag().empty() ? plain_scalar(node.Scalar())
                                                       : boost::json::value(node.Scalar());
      case YAML::NodeType::Sequence:
        return convert_list(node, depth);
      case YAML::NodeType::Map:
        return convert_map(node, depth);
    }
    return refuse(node, "is of an unknown kind", ErrorCode::invalid_argument);
  }

 private:
  static Error refuse(const YAML::Node& node, const std::string& what, ErrorCode code) {
    return make_error(code, "line " + std::to_string(node.Mark().line + 1) + ": " + what);
  }

  Result<boost::json::value> convert_list(const YAML::Node& node, std::size_t depth) {
    boost::json::array array;
    for (const YAML::Node& item : node) {
      PENSTOCK_TRY(boost::json::value value, convert(item, depth + 1));
      array.push_back(std::move(value));
    }
    return boost::json::value(std::move(array));
  }

  Result<boost::json::value> convert_map(const YAML::Node& node, std::size_t depth) {
    boost::json::object object;
    for (const auto& item : node) {
      if (!item.first.IsScalar()) return refuse(item.first, "a key must be text", ErrorCode::invalid_argument);
      PENSTOCK_TRY(boost::json::value value, convert(item.second, depth + 1));
      if (!object.emplace(item.first.Scalar(), std::move(value)).second) {
        return refuse(item.first, "the key '" + item.first.Scalar().substr(0, 64) + "' is given twice",
                      ErrorCode::invalid_argument);
      }
    }
    return boost::json::value(std::move(object));
  }

  const YamlLimits& limits_;
  std::size_t values_ = 0;
};

}  // namespace

Result<std::vector<boost::json::value>> parse_yaml(std::string_view text, const YamlLimits& limits) {
  if (text.size() > limits.text_bytes_max) {
    return make_error(ErrorCode::resource_exhausted,
                      "the text is larger than " + std::to_string(limits.text_bytes_max) + " bytes");
  }
  std::vector<boost::json::value> documents;
  try {
    Converter converter(limits);
    for (const YAML::Node& document : load_documents(std::string(text))) {
      if (document.IsNull()) continue;
      PENSTOCK_TRY(boost::json::value value, converter.convert(document, 1));
      documents.push_back(std::move(value));
    }
  } catch (const YAML::Exception& error) {
    return make_error(ErrorCode::invalid_argument,
                      "line " + std::to_string(error.mark.line + 1) + ": bad YAML: " + error.msg);
  }
  return documents;
}

}  // namespace penstock::config
