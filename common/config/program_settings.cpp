#include "common/config/program_settings.hpp"

#include <array>

namespace penstock::config {

void LogSettings::fields(Fields& f) {
  f.field("level", level, "Least severe records to write.");
  f.field("format", format, "One record a line, for people or for machines.");
  f.field("file", file, "Where records go; empty is stderr.");
}

void TlsSettings::fields(Fields& f) {
  f.field("cert-file", cert_file, "Certificate chain, PEM.");
  f.field("key-file", key_file, "Private key, PEM.");
  f.field("ca-file", ca_file, "Authority that the other side's certificate must come from, PEM.");
}

void PeerTlsSettings::fields(Fields& f) {
  TlsSettings::fields(f);
  f.field("peer-name", peer_name,
          "Name that certificates of those connected to must carry; empty is the host connected to.");
}

bool is_loopback_address(std::string_view address) {
  return address == "::1" || address == "localhost" || address.starts_with("127.");
}

}  // namespace penstock::config

namespace penstock::log {

std::span<const std::pair<std::string_view, Level>> config_names(Level) {
  static constexpr std::array<std::pair<std::string_view, Level>, 4> names{
      {{"debug", Level::debug}, {"info", Level::info}, {"warn", Level::warn}, {"error", Level::error}}};
  return names;
}

std::span<const std::pair<std::string_view, Format>> config_names(Format) {
  static constexpr std::array<std::pair<std::string_view, Format>, 2> names{
      {{"logfmt", Format::logfmt}, {"json", Format::json}}};
  return names;
}

}  // namespace penstock::log
