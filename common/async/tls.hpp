// TLS contexts, at least TLS 1.2, built from PEM files at start (and again when files change). Shared by all
// connections made with them; immutable, so any thread.
#pragma once

#include <memory>
#include <string>

#include "common/base/result.hpp"

namespace penstock::async {

struct TlsFiles {
  std::string certificate_file;  // chain, PEM; may be empty for a client
  std::string key_file;
  /// Whom to trust; for a server: clients must present a certificate of this authority (mutual TLS).
  std::string ca_file;
  std::string server_name = "";  // for a client: what the certificate must be for; "": the host connected to
};

class TlsContext;                                   // in tls_context.hpp, for common/async only
using TlsContextPtr = std::shared_ptr<TlsContext>;  // shared: connections outlive a reload

Result<TlsContextPtr> make_tls_server(const TlsFiles& files);
/// With an empty ca_file the system's authorities are trusted. The peer's name is checked against the name given to
/// connect().
Result<TlsContextPtr> make_tls_client(const TlsFiles& files);

}  // namespace penstock::async
