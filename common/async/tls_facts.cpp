#include "common/async/tls_facts.hpp"

#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <ctime>

#include "common/async/tls_context.hpp"

namespace penstock::async {

std::optional<std::int64_t> certificate_end_s(const TlsContextPtr& tls) {
  if (!tls) return std::nullopt;
  const auto context = tls->current();
  const X509* certificate = SSL_CTX_get0_certificate(context->native_handle());
  if (certificate == nullptr) return std::nullopt;
  std::tm end{};
  if (ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &end) != 1) return std::nullopt;
  return static_cast<std::int64_t>(timegm(&end));
}

}  // namespace penstock::async
