// A client's TLS context from PEM texts in memory, for credentials that are replaced while we run.
#pragma once

#include <string>

#include "common/async/tls.hpp"

namespace penstock::async {

struct TlsMaterial {
  std::string certificate;  // chain; may be empty
  std::string key;
  std::string authorities;  // whom to trust; empty: the system's
  std::string server_name;  // whom the peer's certificate must name, if not the host given to connect()
};

Result<TlsContextPtr> make_tls_client(const TlsMaterial& material);

}  // namespace penstock::async
