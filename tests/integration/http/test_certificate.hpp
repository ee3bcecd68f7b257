// Certificates made when the test runs: by default self-signed for "localhost" and 127.0.0.1, for two hours around now.
#pragma once

#include <string>

namespace penstock::http {

struct CertificateWish {
  std::string names = "DNS:localhost,IP:127.0.0.1";
  long begins_s = -3600;  // from now
  long ends_s = 3600;
  std::string issuer_certificate_file = "";  // "": it signs itself
  std::string issuer_key_file = "";
};

/// Writes both as PEM; throws std::runtime_error if that fails.
void write_test_certificate(const std::string& certificate_file, const std::string& key_file,
                            const CertificateWish& wish = {});

}  // namespace penstock::http
