// Fills a config struct: option > environment > file > default. Besides the struct's own options every program has
// --config FILE, --set KEY=VALUE (repeatable), --print-config, --version and --help. yaml-cpp and CLI11 stay in the
// .cpp. Start-up only; one thread. After that the struct is const.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "common/config/fields.hpp"

namespace penstock::config {

struct Program {
  std::string name;
  std::string version;
  std::string description;
  std::string env_prefix = "PENSTOCK_";
};

/// The value of an environment variable, or nothing.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
Environment process_environment();

/// What main() does next: run with the config, or print `output` (`error_output` to stderr) and exit.
struct Outcome {
  std::optional<int> exit_code;
  std::string output;
  std::string error_output;
};

template <class Config>
struct Loaded {
  Config config;
  Outcome outcome;
};

namespace detail {
/// `validate` runs on the final values.
Outcome load_into(const Program& program, Fields& fields, int argc, const char* const* argv,
                  const Environment& environment, const std::function<void(Problems&)>& validate);
}  // namespace detail

/// Throws nothing for wrong input: problems are in the outcome (exit code 2), all of them at once.
template <class Config>
Loaded<Config> load(const Program& program, int argc, const char* const* argv,
                    const Environment& environment = process_environment()) {
  Loaded<Config> loaded;
  Fields fields;
  loaded.config.fields(fields);
  loaded.outcome = detail::load_into(program, fields, argc, argv, environment, [&](Problems& problems) {
    if constexpr (requires { loaded.config.validate(problems); }) loaded.config.validate(problems);
  });
  return loaded;
}

/// Applies YAML text to the fields. Every unknown key, duplicate key and wrong type becomes a problem; hostile text is
/// safe (size and depth are bounded).
void apply_yaml(std::string_view text, const Fields& fields, Problems& problems);

/// The settings as YAML, secrets redacted; what --print-config prints and /config serves.
std::string to_yaml(const Fields& fields);
template <class Config>
std::string to_yaml(const Config& config) {
  Config copy = config;
  Fields fields;
  copy.fields(fields);
  return to_yaml(fields);
}

/// A Markdown table of all settings, for docs.
std::string to_markdown(const Program& program, const Fields& fields);

}  // namespace penstock::config
