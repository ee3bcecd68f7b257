// Where the files of a model cache come from, and what each of them must be: the URI of a ModelCache, the lists that a
// hub or a web folder gives, and the digest of a list. Pure; any thread. At most files_max files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.hpp"
#include "common/json/json.hpp"

namespace penstock::ctl {

inline constexpr std::size_t files_max = 1000;

/// An http:// or https:// URL, taken apart.
struct WebAddress {
  bool encrypted = true;
  std::string host;
  std::uint16_t port = 443;
  std::string target;  // path and query, percent-encoded
};
Result<WebAddress> parse_address(std::string_view url);
/// Where a Location header of an answer from `from` leads.
Result<WebAddress> follow(const WebAddress& from, std::string_view location);

enum class SourceKind : std::uint8_t {
  hub,       // hf://ORG/REPOSITORY: the API of a model hub
  web_file,  // https://HOST/PATH: one file
  web_list,  // https://HOST/PATH/: the files that its SHA256SUMS names
  folder,    // file:///PATH: a folder of the node, or one file
};

struct Source {
  SourceKind kind = SourceKind::hub;
  std::string repository;  // of a hub: "ORG/REPOSITORY"
  std::string revision;    // of a hub: a commit, tag or branch
  WebAddress web;          // of a web_file or web_list
  std::string path;        // of a folder
};
/// The error says what the agent fetches, or who serves the scheme instead.
Result<Source> parse_source(std::string_view uri, std::string_view revision);

/// One file to be fetched. Sizes and digests are there if the source tells them.
struct SourceFile {
  std::string name;  // relative, with '/' between parts; safe
  std::optional<std::uint64_t> bytes;
  std::string sha256;    // 64 hex digits
  std::string git_sha1;  // of the content as a git blob, where a hub has nothing better
  std::string target;    // percent-encoded path on the host, or of a folder
};

/// Relative, no part that begins with a dot: what a source names ends up on the node's disk.
bool is_safe_name(std::string_view name);
/// Percent-encodes all but unreserved characters and '/'.
std::string encode_path(std::string_view path);

std::string hub_revision_target(const Source& source);
/// The commit that a hub's answer about a revision names.
Result<std::string> parse_hub_revision(const json::Value& answer);
std::string hub_tree_target(const Source& source, std::string_view commit);
/// Files whose names aren't safe (".gitattributes") are passed over.
Result<std::vector<SourceFile>> parse_hub_tree(const json::Value& answer, const Source& source,
                                               std::string_view commit);
/// The text of sha256sum: "HEX  NAME" a line.
Result<std::vector<SourceFile>> parse_sums(std::string_view text, const WebAddress& folder);

/// What spec.digest is compared with: "sha256:" and the digest of the text that `sha256sum` prints for the files in the
/// order of their names.
std::string digest_of(std::vector<SourceFile> files);

/// Sum of the sizes that are known; nothing if one isn't.
std::optional<std::uint64_t> bytes_of(const std::vector<SourceFile>& files);

}  // namespace penstock::ctl
