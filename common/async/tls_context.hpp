// Internal to common/async: what is behind TlsContext.
#pragma once

#include <boost/asio/ssl/context.hpp>

#include "common/async/tls.hpp"

namespace penstock::async {

class TlsContext {
 public:
  explicit TlsContext(boost::asio::ssl::context::method method) : context(method) {}

  boost::asio::ssl::context context;
  bool is_client = false;
};

}  // namespace penstock::async
