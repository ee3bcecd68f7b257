// An authority of one test, with its own folder, and the TLS contexts of those whom it certifies.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>

#include "common/async/tls.hpp"
#include "tests/integration/http/test_certificate.hpp"
#include "worker/transfer/channel.hpp"

namespace penstock::worker::transfer::test {

class Authority {
 public:
  Authority() {
    std::string pattern = (std::filesystem::temp_directory_path() / "penstock-kv-tls-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary folder");
    folder_ = pattern;
    http::write_test_certificate(file(), folder_ / "authority-key.pem");
  }
  ~Authority() { std::filesystem::remove_all(folder_); }
  Authority(const Authority&) = delete;
  Authority& operator=(const Authority&) = delete;

  std::string file() const { return folder_ / "authority.pem"; }
  /// Of a member that trusts `trusted`.
  ChannelTls member(const Authority& trusted, http::CertificateWish wish = {}, std::string peer_name = "") const {
    wish.issuer_certificate_file = file();
    wish.issuer_key_file = folder_ / "authority-key.pem";
    const std::string certificate = folder_ / "member.pem", key = folder_ / "member-key.pem";
    http::write_test_certificate(certificate, key, wish);
    const async::TlsFiles files{certificate, key, trusted.file(), std::move(peer_name)};
    return {async::make_tls_server(files).value(), async::make_tls_client(files).value()};
  }
  ChannelTls member(http::CertificateWish wish = {}) const { return member(*this, std::move(wish)); }
  /// Of one that shows no certificate.
  ChannelTls nobody() const { return {nullptr, async::make_tls_client({"", "", file()}).value()}; }

 private:
  std::filesystem::path folder_;
};

}  // namespace penstock::worker::transfer::test
