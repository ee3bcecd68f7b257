#include "common/async/tls_facts.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "common/time/wall_clock.hpp"
#include "tests/integration/http/test_certificate.hpp"

namespace penstock::async {
namespace {

TEST(TlsFacts, SayWhenTheOwnCertificateEnds) {
  std::string folder = "/tmp/penstock-tls-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  http::write_test_certificate(folder + "/cert.pem", folder + "/key.pem");
  TlsFiles files;
  files.certificate_file = folder + "/cert.pem";
  files.key_file = folder + "/key.pem";
  const auto end = certificate_end_s(make_tls_server(files).value());
  std::filesystem::remove_all(folder);
  ASSERT_TRUE(end);
  EXPECT_GT(*end, wall_now().unix_s);
  EXPECT_FALSE(certificate_end_s(nullptr));
  EXPECT_FALSE(certificate_end_s(make_tls_client(TlsFiles()).value())) << "it presents none";
}

}  // namespace
}  // namespace penstock::async
