// Settings as YAML, in and out. Only the files yaml*.cpp know yaml-cpp.
#include <algorithm>
#include <set>

#include "common/config/load.hpp"
#include "common/config/yaml_documents.hpp"

namespace penstock::config {
namespace {

constexpr std::size_t text_bytes_max = 1 << 20;
constexpr std::string_view redacted = "(redacted)";

const FieldEntry* find_field(const Fields& fields, std::string_view path) {
  for (const FieldEntry& entry : fields.entries()) {
    if (entry.path == path) return &entry;
  }
  return nullptr;
}

bool is_section(const Fields& fields, const std::string& path) {
  const std::string prefix = path + ".";
  return std::any_of(fields.entries().begin(), fields.entries().end(),
                     [&](const FieldEntry& entry) { return entry.path.starts_with(prefix); });
}

std::string_view kind_of(const YAML::Node& node) {
  if (node.IsMap()) return "a mapping";
  if (node.IsSequence()) return "a list";
  if (node.IsNull()) return "empty";
  return "a value";
}

void apply_field(const FieldEntry& entry, const YAML::Node& node, Problems& problems) {
  std::vector<std::string> texts;
  if (entry.is_list) {
    if (!node.IsSequence()) {
      problems.add(entry.path, "must be a list, is " + std::string(kind_of(node)));
      return;
    }
    std::size_t index = 0;
    for (const YAML::Node& item : node) {
      if (!item.IsScalar()) {
        problems.add(entry.path + "[" + std::to_string(index) + "]",
                     "must be a value, is " + std::string(kind_of(item)));
        return;
      }
      texts.push_back(item.Scalar());
      ++index;
    }
  } else {
    if (!node.IsScalar()) {
      problems.add(entry.path, "must be a value (" + entry.type + "), is " + std::string(kind_of(node)));
      return;
    }
    texts.push_back(node.Scalar());
  }
  if (auto assigned = entry.assign(texts); !assigned) problems.add(entry.path, assigned.error().message);
}

void apply_mapping(const YAML::Node& mapping, const std::string& prefix, const Fields& fields, Problems& problems) {
  std::set<std::string> seen;
  for (const auto& item : mapping) {
    if (!item.first.IsScalar()) {
      problems.add(prefix.empty() ? "document" : prefix, "has a key that is not a word");
      continue;
    }
    const std::string path = prefix.empty() ? item.first.Scalar() : prefix + "." + item.first.Scalar();
    if (!seen.insert(path).second) {
      problems.add(path, "is given twice");
    } else if (const FieldEntry* entry = find_field(fields, path)) {
      apply_field(*entry, item.second, problems);
    } else if (!is_section(fields, path)) {
      problems.add(path.substr(0, 128), "unknown key");
    } else if (!item.second.IsMap()) {
      problems.add(path, "must be a mapping, is " + std::string(kind_of(item.second)));
    } else {
      apply_mapping(item.second, path, fields, problems);
    }
  }
}

std::string yaml_scalar(const std::string& text) {
  YAML::Emitter emitter;
  emitter.SetStringFormat(YAML::Auto);
  emitter << text;
  return emitter.c_str();
}

void append_setting(std::string& out, const FieldEntry& entry, const std::string& indent, std::string_view key) {
  std::vector<std::string> texts = entry.read();
  if (entry.show == Show::redacted) {
    for (std::string& text : texts) {
      if (!text.empty()) text = redacted;
    }
  }
  if (!entry.is_list && texts.empty()) {
    out += indent + "# " + std::string(key) + ": not set\n";
    return;
  }
  out += indent + std::string(key) + ":";
  if (!entry.is_list) {
    out += " " + yaml_scalar(texts.front()) + "\n";
    return;
  }
  if (texts.empty()) out += " []";
  out += "\n";
  for (const std::string& text : texts) out += indent + "  - " + yaml_scalar(text) + "\n";
}

}  // namespace

void apply_yaml(std::string_view text, const Fields& fields, Problems& problems) {
  if (text.size() > text_bytes_max) {
    problems.add("document", "is larger than 1 MiB");
    return;
  }
  try {
    const std::vector<YAML::Node> documents = load_documents(std::string(text));
    if (documents.size() > 1) problems.add("document", "has several YAML documents");
    if (documents.size() != 1 || documents[0].IsNull()) return;
    if (!documents[0].IsMap()) {
      problems.add("document", "must be a mapping, is " + std::string(kind_of(documents[0])));
      return;
    }
    apply_mapping(documents[0], "", fields, problems);
  } catch (const YAML::Exception& error) {
    problems.add("line " + std::to_string(error.mark.line + 1), "bad YAML: " + error.msg);
  }
}

std::string to_yaml(const Fields& fields) {
  std::string out, section;
  for (const FieldEntry& entry : fields.entries()) {
    const std::size_t dot = entry.path.rfind('.');
    const std::string parent = dot == std::string::npos ? "" : entry.path.substr(0, dot);
    // Open the sections that this setting is in and the one before was not.
    std::size_t start = 0, depth = 0;
    while (start < parent.size()) {
      const std::size_t end = std::min(parent.find('.', start), parent.size());
      const std::string prefix = parent.substr(0, end);
      if (section != prefix && !section.starts_with(prefix + ".")) {
        out += std::string(2 * depth, ' ') + parent.substr(start, end - start) + ":\n";
      }
      start = end + 1;
      ++depth;
    }
    section = parent;
    append_setting(out, entry, std::string(2 * depth, ' '), entry.path.substr(dot == std::string::npos ? 0 : dot + 1));
  }
  return out;
}

}  // namespace penstock::config
