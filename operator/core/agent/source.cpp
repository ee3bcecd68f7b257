#include "operator/core/agent/source.hpp"

#include <algorithm>

#include "common/digest/digest.hpp"
#include "common/kube/model/object_meta.hpp"
#include "common/kube/model/resource_type.hpp"
#include "operator/core/names.hpp"

namespace penstock::ctl {
namespace {

constexpr std::string_view https = "https://", http = "http://";

bool is_hex(std::string_view text, std::size_t digits) {
  return text.size() == digits &&
         std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool has_control(std::string_view text) {
  return std::any_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) <= ' ' || c == 127; });
}

Error unusable(std::string message) {
  return make_error(ErrorCode::invalid_argument, std::move(message));
}

Result<std::vector<SourceFile>> checked(std::vector<SourceFile> files) {
  if (files.empty()) return unusable("the source lists no file");
  if (files.size() > files_max) return unusable("the source lists more than " + std::to_string(files_max) + " files");
  std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  for (std::size_t i = 1; i < files.size(); ++i) {
    if (files[i].name == files[i - 1].name) return unusable("the source lists " + files[i].name + " twice");
  }
  return files;
}

}  // namespace

Result<WebAddress> parse_address(std::string_view url) {
  WebAddress out;
  if (url.starts_with(https)) {
    url.remove_prefix(https.size());
  } else if (url.starts_with(http)) {
    url.remove_prefix(http.size());
    out.encrypted = false;
    out.port = 80;
  } else {
    return unusable("the URL doesn't begin with http:// or https://");
  }
  if (has_control(url)) return unusable("the URL has a character that must be percent-encoded");
  const auto slash = std::min(url.find_first_of("/?"), url.size());
  std::string_view authority = url.substr(0, slash);
  out.target = url.substr(slash, url.find('#') - slash);
  if (out.target.empty() || out.target.front() != '/') out.target.insert(0, "/");
  if (authority.find('@') != std::string_view::npos) return unusable("a URL with a user or a password isn't taken");
  const auto colon = authority.rfind(':');
  if (colon != std::string_view::npos && authority.find(']', colon) == std::string_view::npos) {
    const auto port = parse_decimal(authority.substr(colon + 1));
    if (!port || *port == 0 || *port > 65535) return unusable("the URL's port isn't a number from 1 to 65535");
    out.port = static_cast<std::uint16_t>(*port);
    authority = authority.substr(0, colon);
  }
  if (authority.starts_with('[') && authority.ends_with(']')) authority = authority.substr(1, authority.size() - 2);
  if (authority.empty()) return unusable("the URL names no host");
  out.host = authority;
  return out;
}

Result<WebAddress> follow(const WebAddress& from, std::string_view location) {
  if (location.starts_with(https) || location.starts_with(http)) {
    PENSTOCK_TRY(WebAddress to, parse_address(location));
    if (from.encrypted && !to.encrypted) return unusable("a redirect leads from https to http");
    return to;
  }
  if (!location.starts_with('/') || location.starts_with("//") || has_control(location)) {
    return unusable("a redirect leads nowhere");
  }
  WebAddress to = from;
  to.target = location;
  return to;
}

Result<Source> parse_source(std::string_view uri, std::string_view revision) {
  Source out;
  if (uri.starts_with("hf://")) {
    out.kind = SourceKind::hub;
    out.repository = uri.substr(5);
    out.revision = revision.empty() ? "main" : std::string(revision);
    if (out.repository.ends_with('/')) out.repository.pop_back();
    if (std::count(out.repository.begin(), out.repository.end(), '/') != 1 || !is_safe_name(out.repository)) {
      return unusable("a hub's URI is hf://ORG/REPOSITORY");
    }
    return out;
  }
  if (uri.starts_with(https) || uri.starts_with(http)) {
    PENSTOCK_TRY(out.web, parse_address(uri));
    out.kind = out.web.target.ends_with('/') ? SourceKind::web_list : SourceKind::web_file;
    return out;
  }
  if (uri.starts_with("file:///")) {
    out.kind = SourceKind::folder;
    out.path = uri.substr(7);
    return out;
  }
  for (const std::string_view scheme : {"s3://", "gs://"}) {
    if (!uri.starts_with(scheme)) continue;
    return make_error(ErrorCode::unsupported, "the agent doesn't speak " + std::string(scheme) +
                                                  ". Use an https:// URL of the bucket, with a SHA256SUMS file.");
  }
  return make_error(ErrorCode::unsupported, "the agent fetches hf://, https://, http:// and file:// only");
}

bool is_safe_name(std::string_view name) {
  if (name.empty() || name.size() > 512 || name.find('\\') != std::string_view::npos) return false;
  if (std::any_of(name.begin(), name.end(), [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 127; })) {
    return false;
  }
  while (true) {
    const auto slash = name.find('/');
    const std::string_view part = name.substr(0, slash);
    if (part.empty() || part.front() == '.' || part.size() > 255) return false;
    if (slash == std::string_view::npos) return true;
    name.remove_prefix(slash + 1);
  }
}

std::string encode_path(std::string_view path) {
  return kube::percent_encode(path, "-._~/");
}

std::string hub_revision_target(const Source& source) {
  return "/api/models/" + encode_path(source.repository) + "/revision/" + encode_path(source.revision);
}

Result<std::string> parse_hub_revision(const json::Value& answer) {
  const auto* object = answer.if_object();
  const auto commit = object == nullptr ? std::nullopt : kube::text_at(*object, {"sha"});
  if (!commit || !is_hex(*commit, 40)) return unusable("the hub names no commit for the revision");
  return std::string(*commit);
}

std::string hub_tree_target(const Source& source, std::string_view commit) {
  return "/api/models/" + encode_path(source.repository) + "/tree/" + std::string(commit) + "?recursive=true";
}

Result<std::vector<SourceFile>> parse_hub_tree(const json::Value& answer, const Source& source,
                                               std::string_view commit) {
  const auto* list = answer.if_array();
  if (list == nullptr) return unusable("the hub's list of files is no list");
  std::vector<SourceFile> files;
  for (const auto& item : *list) {
    const auto* entry = item.if_object();
    if (entry == nullptr || kube::text_at(*entry, {"type"}) != "file") continue;
    SourceFile file;
    file.name = kube::text_at(*entry, {"path"}).value_or("");
    if (!is_safe_name(file.name)) continue;
    const auto bytes = kube::integer_at(*entry, {"size"});
    if (!bytes || *bytes < 0) return unusable("the hub tells no size of " + file.name);
    file.bytes = static_cast<std::uint64_t>(*bytes);
    file.sha256 = kube::text_at(*entry, {"lfs", "oid"}).value_or("");
    if (file.sha256.empty()) file.git_sha1 = kube::text_at(*entry, {"oid"}).value_or("");
    if (!is_hex(file.sha256, 64) && !is_hex(file.git_sha1, 40)) {
      return unusable("the hub tells no digest of " + file.name);
    }
    file.target =
        "/" + encode_path(source.repository) + "/resolve/" + std::string(commit) + "/" + encode_path(file.name);
    files.push_back(std::move(file));
  }
  return checked(std::move(files));
}

Result<std::vector<SourceFile>> parse_sums(std::string_view text, const WebAddress& folder) {
  std::vector<SourceFile> files;
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    SourceFile file;
    file.sha256 = line.substr(0, 64);
    const bool separated = line.size() > 66 && line[64] == ' ' && (line[65] == ' ' || line[65] == '*');
    if (!is_hex(file.sha256, 64) || !separated) return unusable("a line of SHA256SUMS isn't \"HEX  NAME\"");
    file.name = line.substr(66);
    if (file.name.starts_with("./")) file.name.erase(0, 2);
    if (!is_safe_name(file.name)) return unusable("SHA256SUMS names a file that can't be stored");
    file.target = folder.target + encode_path(file.name);
    files.push_back(std::move(file));
  }
  return checked(std::move(files));
}

std::string digest_of(std::vector<SourceFile> files) {
  std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  std::string text;
  for (const auto& file : files) text += file.sha256 + "  " + file.name + "\n";
  return "sha256:" + digest::sha256_hex(text);
}

std::optional<std::uint64_t> bytes_of(const std::vector<SourceFile>& files) {
  std::uint64_t sum = 0;
  for (const auto& file : files) {
    if (!file.bytes) return std::nullopt;
    sum += *file.bytes;
  }
  return sum;
}

}  // namespace penstock::ctl
