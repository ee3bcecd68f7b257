// What can be said of a TLS context: when its own certificate ends. Any thread.
#pragma once

#include <cstdint>
#include <optional>

#include "common/async/tls.hpp"

namespace penstock::async {

/// The end of the certificate that the context presents, in Unix seconds; nothing if it presents none.
std::optional<std::int64_t> certificate_end_s(const TlsContextPtr& tls);

}  // namespace penstock::async
