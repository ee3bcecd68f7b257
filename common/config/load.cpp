// The command line, the environment and the order of precedence; the only file that knows CLI11.
#include "common/config/load.hpp"

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <fstream>
#include <iterator>

namespace penstock::config {
namespace {

std::string variable_name(const Program& program, std::string_view option) {
  std::string name = program.env_prefix;
  for (char c : option) name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

std::vector<std::string> split_list(const std::string& text) {
  std::vector<std::string> items;
  std::size_t start = 0;
  while (start < text.size()) {
    const std::size_t end = std::min(text.find(',', start), text.size());
    items.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return items;
}

void assign(const FieldEntry& entry, std::vector<std::string> texts, const std::string& where, Problems& problems) {
  if (auto assigned = entry.assign(texts); !assigned) problems.add(where, assigned.error().message);
}

void apply_file(const std::string& path, const Fields& fields, Problems& problems) {
  std::ifstream file(path);
  if (!file) {
    problems.add("--config", "the file " + path + " can't be read");
    return;
  }
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  Problems in_file;
  apply_yaml(text, fields, in_file);
  for (const std::string& problem : in_file.list()) problems.add(path, problem);
}

void apply_environment(const Program& program, const Environment& environment, const Fields& fields,
                       Problems& problems) {
  for (const FieldEntry& entry : fields.entries()) {
    const std::string name = variable_name(program, entry.option);
    if (auto text = environment(name)) {
      assign(entry, entry.is_list ? split_list(*text) : std::vector{*text}, name, problems);
    }
  }
}

void apply_set(const std::vector<std::string>& settings, const Fields& fields, Problems& problems) {
  for (const std::string& setting : settings) {
    const std::size_t equals = setting.find('=');
    const std::string key = setting.substr(0, equals);
    const std::string where = "--set " + key;
    if (equals == std::string::npos) {
      problems.add(where, "must be KEY=VALUE");
      continue;
    }
    const FieldEntry* found = nullptr;
    for (const FieldEntry& entry : fields.entries()) {
      if (entry.path == key || entry.option == key) found = &entry;
    }
    if (found == nullptr) {
      problems.add(where, "unknown key");
      continue;
    }
    const std::string text = setting.substr(equals + 1);
    assign(*found, found->is_list ? split_list(text) : std::vector{text}, where, problems);
  }
}

/// The parser with one option for each setting; options are kept in the order of the settings.
struct CommandLine {
  CLI::App app;
  std::vector<CLI::Option*> options;
  std::string config_file;
  std::vector<std::string> settings;
  bool print_config = false;
  bool print_version = false;

  CommandLine(const Program& program, const Fields& fields) : app(program.description, program.name) {
    app.allow_extras();
    app.add_option("--config", config_file, "YAML file whose keys are the options below.")->type_name("FILE");
    app.add_option("--set", settings, "Sets any option by its key; repeatable.")
        ->type_name("KEY=VALUE")
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    app.add_flag("--print-config", print_config, "Prints the settings in force as YAML, secrets redacted, and exits.");
    app.add_flag("--version", print_version, "Prints the version and exits.");
    app.footer("Every option is also a key of the YAML file and a variable " + program.env_prefix +
               "<OPTION>; an option wins over the environment, that over the file.");
    for (const FieldEntry& entry : fields.entries()) add(entry);
  }

  void add(const FieldEntry& entry) {
    CLI::Option* option =
        app.add_option("--" + entry.option, CLI::callback_t([](const CLI::results_t&) { return true; }), entry.help);
    option->type_name(entry.choices.empty() ? entry.type : "{" + entry.choices + "}");
    if (entry.is_flag) {
      option->expected(0, 1);
    } else {
      option->expected(1);
      if (!entry.default_text.empty() && entry.show == Show::plain) option->default_str(entry.default_text);
    }
    option->multi_option_policy(entry.is_list ? CLI::MultiOptionPolicy::TakeAll : CLI::MultiOptionPolicy::TakeLast);
    options.push_back(option);
  }

  void apply(const Fields& fields, Problems& problems) const {
    for (std::size_t i = 0; i < options.size(); ++i) {
      if (options[i]->count() == 0) continue;
      const FieldEntry& entry = fields.entries()[i];
      std::vector<std::string> texts = options[i]->results();
      if (!entry.is_list) texts = {texts.empty() ? "" : texts.back()};
      if (entry.is_flag && texts.front().empty()) texts.front() = "true";  // it stood alone
      assign(entry, texts, "--" + entry.option, problems);
    }
  }
};

Outcome refuse(const Program& program, const Problems& problems) {
  Outcome outcome;
  outcome.exit_code = 2;
  for (const std::string& problem : problems.list()) outcome.error_output += program.name + ": " + problem + "\n";
  outcome.error_output += program.name + ": --help lists the options\n";
  return outcome;
}

}  // namespace

Environment process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* text = std::getenv(name.c_str());
    if (text == nullptr) return std::nullopt;
    return std::string(text);
  };
}

namespace detail {

Outcome load_into(const Program& program, Fields& fields, int argc, const char* const* argv,
                  const Environment& environment, const std::function<void(Problems&)>& validate) {
  Problems problems;
  CommandLine line(program, fields);
  try {
    line.app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return {0, line.app.help(), ""};
  } catch (const CLI::ParseError& error) {
    problems.add("command line", error.what());
    return refuse(program, problems);
  }
  if (line.print_version) return {0, program.name + " " + program.version + "\n", ""};
  for (const std::string& extra : line.app.remaining()) {
    problems.add(extra.substr(0, extra.find('=')), extra.starts_with("-") ? "unknown option" : "unexpected argument");
  }
  std::string file = line.config_file;
  if (file.empty()) file = environment(variable_name(program, "config")).value_or("");
  if (!file.empty()) apply_file(file, fields, problems);
  apply_environment(program, environment, fields, problems);
  apply_set(line.settings, fields, problems);
  line.apply(fields, problems);
  if (problems.empty()) validate(problems);
  if (!problems.empty()) return refuse(program, problems);
  if (line.print_config) return {0, to_yaml(fields), ""};
  return {};
}

}  // namespace detail

std::string to_markdown(const Program& program, const Fields& fields) {
  std::string out = "| Option and YAML key | Variable | Type | Default | Meaning |\n| --- | --- | --- | --- | --- |\n";
  for (const FieldEntry& entry : fields.entries()) {
    out += "| `--" + entry.option + "`";
    if (entry.path != entry.option) out += " (`" + entry.path + "`)";
    out += " | `" + variable_name(program, entry.option) + "` | ";
    out += entry.choices.empty() ? entry.type : entry.choices;
    out += " | ";
    if (!entry.default_text.empty()) out += "`" + entry.default_text + "`";
    out += " | " + entry.help + " |\n";
  }
  return out;
}

}  // namespace penstock::config
