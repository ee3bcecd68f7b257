// One declaration of a setting serves the command line, the environment, the YAML file, --print-config and the docs.
// A config struct has defaults in its members and one function that names them:
//
//   struct ServerConfig {
//     std::uint16_t port = 8000;
//     Duration drain_grace = std::chrono::seconds(30);
//     std::string api_key;
//     void fields(config::Fields& f) {
//       f.field("port", port, "Port of the public API.");
//       f.field("drain-grace", drain_grace, "How long streams may go on after SIGTERM.");
//       f.field("api-key", api_key, "Key of the upstream.", config::Show::redacted);
//       f.section("tls", tls);                                  // a struct with fields() of its own
//     }
//     void validate(config::Problems& problems) const;          // optional; sees the final values
//   };
//
// The setting `tls.cert-file` is the option --tls-cert-file, the variable PENSTOCK_TLS_CERT_FILE, and cert-file under
// tls in YAML. Lists are YAML sequences, repeated options, or comma-separated in the environment. Start-up only; one
// thread.
#pragma once

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/base/result.hpp"
#include "common/config/units.hpp"
#include "common/time/clock.hpp"

namespace penstock::config {

enum class Show : std::uint8_t { plain, redacted };

/// All that is wrong, each with the path of its setting; reported at once.
class Problems {
 public:
  void add(std::string_view path, std::string_view reason) {
    list_.push_back(std::string(path) + ": " + std::string(reason));
  }
  bool empty() const { return list_.empty(); }
  const std::vector<std::string>& list() const { return list_; }
  std::string to_string() const;  // one a line

 private:
  std::vector<std::string> list_;
};

/// Text to value and back. An enum is supported by a table found by argument-dependent lookup:
///   std::span<const std::pair<std::string_view, Policy>> config_names(Policy);
Result<void> parse_value(std::string_view text, bool& out);
Result<void> parse_value(std::string_view text, std::int64_t& out);
Result<void> parse_value(std::string_view text, std::uint64_t& out);
Result<void> parse_value(std::string_view text, double& out);
Result<void> parse_value(std::string_view text, std::string& out);
Result<void> parse_value(std::string_view text, std::filesystem::path& out);
Result<void> parse_value(std::string_view text, Duration& out);
Result<void> parse_value(std::string_view text, ByteSize& out);
std::string format_value(bool value);
std::string format_value(std::int64_t value);
std::string format_value(std::uint64_t value);
std::string format_value(double value);
std::string format_value(const std::string& value);
std::string format_value(const std::filesystem::path& value);
std::string format_value(Duration value);
std::string format_value(ByteSize value);

namespace detail {

template <class T>
concept NamedEnum = std::is_enum_v<T> && requires(T value) { config_names(value); };

Error not_one_of(std::string_view text, const std::vector<std::string_view>& names);
Error out_of_range(std::string_view low, std::string_view high);

template <class T>
constexpr std::string_view type_name() {
  if constexpr (std::same_as<T, bool>)
    return "true or false";
  else if constexpr (NamedEnum<T>)
    return "name";
  else if constexpr (std::integral<T>)
    return "integer";
  else if constexpr (std::floating_point<T>)
    return "number";
  else if constexpr (std::same_as<T, Duration>)
    return "duration";
  else if constexpr (std::same_as<T, ByteSize>)
    return "size";
  else if constexpr (std::same_as<T, std::filesystem::path>)
    return "path";
  else
    return "text";
}

template <class T>
Result<void> parse(std::string_view text, T& out) {
  if constexpr (NamedEnum<T>) {
    std::vector<std::string_view> names;
    for (const auto& [name, value] : config_names(T{})) {
      if (name == text) {
        out = value;
        return {};
      }
      names.push_back(name);
    }
    return not_one_of(text, names);
  } else if constexpr (std::integral<T> && !std::same_as<T, bool>) {
    using Wide = std::conditional_t<std::signed_integral<T>, std::int64_t, std::uint64_t>;
    Wide wide = 0;
    if (auto parsed = parse_value(text, wide); !parsed) return parsed;
    if (!std::in_range<T>(wide)) {
      return out_of_range(std::to_string(std::numeric_limits<T>::min()), std::to_string(std::numeric_limits<T>::max()));
    }
    out = static_cast<T>(wide);
    return {};
  } else if constexpr (std::same_as<T, float>) {
    double wide = 0;
    if (auto parsed = parse_value(text, wide); !parsed) return parsed;
    out = static_cast<float>(wide);
    return {};
  } else {
    return parse_value(text, out);
  }
}

template <class T>
std::string format(const T& value) {
  if constexpr (NamedEnum<T>) {
    for (const auto& [name, candidate] : config_names(T{})) {
      if (candidate == value) return std::string(name);
    }
    return "?";
  } else if constexpr (std::integral<T> && !std::same_as<T, bool>) {
    return std::to_string(value);
  } else if constexpr (std::same_as<T, float>) {
    return format_value(static_cast<double>(value));
  } else {
    return format_value(value);
  }
}

template <class T>
struct IsList : std::false_type {};
template <class T>
struct IsList<std::vector<T>> : std::true_type {};
template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};

}  // namespace detail

/// One setting, bound to its place in the config struct.
struct FieldEntry {
  std::string path;    // "tls.cert-file"
  std::string option;  // "tls-cert-file"
  std::string help;
  std::string type;          // for docs
  std::string choices;       // of an enum, comma-separated
  std::string default_text;  // as declared
  Show show = Show::plain;
  bool is_list = false;
  bool is_flag = false;                                                 // a bool: the option may stand alone
  std::function<Result<void>(const std::vector<std::string>&)> assign;  // one text, or all items of a list
  std::function<std::vector<std::string>()> read;                       // the same way; an unset optional gives none
};

class Fields {
 public:
  template <class T>
  void field(std::string_view name, T& place, std::string_view help, Show show = Show::plain);

  /// A nested struct with fields(Fields&).
  template <class Section>
  void section(std::string_view name, Section& section) {
    const std::size_t length = prefix_.size();
    prefix_ += std::string(name) + ".";
    section.fields(*this);
    prefix_.resize(length);
  }

  const std::vector<FieldEntry>& entries() const { return entries_; }

 private:
  void add(FieldEntry entry, std::string_view name);

  std::string prefix_;
  std::vector<FieldEntry> entries_;
};

template <class T>
void Fields::field(std::string_view name, T& place, std::string_view help, Show show) {
  FieldEntry entry;
  entry.help = help;
  entry.show = show;
  if constexpr (detail::IsList<T>::value) {
    using Item = typename T::value_type;
    entry.type = std::string("list of ") + std::string(detail::type_name<Item>());
    entry.is_list = true;
    entry.assign = [&place](const std::vector<std::string>& texts) -> Result<void> {
      T items;
      for (const std::string& text : texts) {
        Item item{};
        if (auto parsed = detail::parse(text, item); !parsed) return parsed;
        items.push_back(std::move(item));
      }
      place = std::move(items);
      return {};
    };
    entry.read = [&place] {
      std::vector<std::string> texts;
      for (const auto& item : place) texts.push_back(detail::format(static_cast<const Item&>(item)));
      return texts;
    };
  } else if constexpr (detail::IsOptional<T>::value) {
    using Item = typename T::value_type;
    entry.type = detail::type_name<Item>();
    entry.assign = [&place](const std::vector<std::string>& texts) -> Result<void> {
      Item item{};
      if (auto parsed = detail::parse(texts.front(), item); !parsed) return parsed;
      place = std::move(item);
      return {};
    };
    entry.read = [&place] {
      return place ? std::vector<std::string>{detail::format(*place)} : std::vector<std::string>{};
    };
  } else {
    entry.type = detail::type_name<T>();
    entry.is_flag = std::same_as<T, bool>;
    if constexpr (detail::NamedEnum<T>) {
      for (const auto& named : config_names(T{})) {
        entry.choices += (entry.choices.empty() ? "" : ", ") + std::string(named.first);
      }
    }
    entry.assign = [&place](const std::vector<std::string>& texts) { return detail::parse(texts.front(), place); };
    entry.read = [&place] { return std::vector<std::string>{detail::format(place)}; };
  }
  add(std::move(entry), name);
}

}  // namespace penstock::config
