// Sections that every program has: logs and TLS files. Names of the log enums as settings.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "common/config/fields.hpp"
#include "common/log/logger.hpp"

namespace penstock::config {

struct LogSettings {
  log::Level level = log::Level::info;
  log::Format format = log::Format::logfmt;
  std::filesystem::path file;

  void fields(Fields& f);
  log::Options options() const { return {level, format, file.string()}; }
};

struct TlsSettings {
  std::filesystem::path cert_file;
  std::filesystem::path key_file;
  std::filesystem::path ca_file;

  void fields(Fields& f);
  bool is_set() const { return !cert_file.empty() || !key_file.empty() || !ca_file.empty(); }
};

/// TLS between programs of one deployment, where both sides show a certificate of one authority.
struct PeerTlsSettings : TlsSettings {
  std::string peer_name;  // that the certificates of those who are connected to must carry; "": the host connected to

  void fields(Fields& f);
};

/// 127.0.0.0/8 or ::1; anything else needs TLS or a flag that says otherwise.
bool is_loopback_address(std::string_view address);

}  // namespace penstock::config

namespace penstock::log {
std::span<const std::pair<std::string_view, Level>> config_names(Level);
std::span<const std::pair<std::string_view, Format>> config_names(Format);
}  // namespace penstock::log
