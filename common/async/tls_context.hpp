// Internal to common/async: what is behind TlsContext.
#pragma once

#include <boost/asio/ssl/context.hpp>
#include <string>

#include "common/async/tls.hpp"

namespace penstock::async {

class TlsContext {
 public:
  explicit TlsContext(boost::asio::ssl::context::method method) : context(method) {}

  boost::asio::ssl::context context;
  bool is_client = false;
  std::string server_name;  // of the peer, if not the host connected to
};

}  // namespace penstock::async
