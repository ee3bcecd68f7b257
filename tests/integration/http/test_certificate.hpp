// A self-signed certificate for "localhost" and 127.0.0.1, made when the test runs.
#pragma once

#include <string>

namespace penstock::http {

/// Writes both as PEM; throws std::runtime_error if that fails.
void write_test_certificate(const std::string& certificate_file, const std::string& key_file);

}  // namespace penstock::http
