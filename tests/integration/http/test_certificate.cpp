#include "tests/integration/http/test_certificate.hpp"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <cstdio>
#include <memory>
#include <stdexcept>

namespace penstock::http {
namespace {

void check(bool ok, const char* what) {
  if (!ok) throw std::runtime_error(std::string("test certificate: ") + what);
}

template <class T, void (*free)(T*)>
struct Free {
  void operator()(T* object) const { free(object); }
};
using Key = std::unique_ptr<EVP_PKEY, Free<EVP_PKEY, EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, Free<X509, X509_free>>;

X509* read_certificate(const std::string& file) {
  std::FILE* in = std::fopen(file.c_str(), "r");
  check(in != nullptr, "issuer's certificate file");
  X509* read = PEM_read_X509(in, nullptr, nullptr, nullptr);
  std::fclose(in);
  check(read != nullptr, "issuer's certificate");
  return read;
}

EVP_PKEY* read_key(const std::string& file) {
  std::FILE* in = std::fopen(file.c_str(), "r");
  check(in != nullptr, "issuer's key file");
  EVP_PKEY* read = PEM_read_PrivateKey(in, nullptr, nullptr, nullptr);
  std::fclose(in);
  check(read != nullptr, "issuer's key");
  return read;
}

void add_extension(X509* certificate, int id, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, certificate, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, id, value);
  check(extension != nullptr && X509_add_ext(certificate, extension, -1) == 1, "extension");
  X509_EXTENSION_free(extension);
}

}  // namespace

void write_test_certificate(const std::string& certificate_file, const std::string& key_file,
                            const CertificateWish& wish) {
  const Key key(EVP_EC_gen("P-256"));
  const Certificate certificate(X509_new());
  const bool is_own_issuer = wish.issuer_certificate_file.empty();
  const Certificate issuer(is_own_issuer ? nullptr : read_certificate(wish.issuer_certificate_file));
  const Key issuer_key(is_own_issuer ? nullptr : read_key(wish.issuer_key_file));
  check(key != nullptr && certificate != nullptr, "allocation");
  X509_set_version(certificate.get(), 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), is_own_issuer ? 1 : 2);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), wish.begins_s);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), wish.ends_s);
  X509_set_pubkey(certificate.get(), key.get());
  X509_NAME* name = X509_get_subject_name(certificate.get());
  const char* common_name = is_own_issuer ? "localhost" : "peer";
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>(common_name), -1, -1, 0);
  X509_set_issuer_name(certificate.get(), is_own_issuer ? name : X509_get_subject_name(issuer.get()));
  add_extension(certificate.get(), NID_subject_alt_name, wish.names.c_str());
  if (is_own_issuer) add_extension(certificate.get(), NID_basic_constraints, "critical,CA:TRUE");
  check(X509_sign(certificate.get(), is_own_issuer ? key.get() : issuer_key.get(), EVP_sha256()) > 0, "signature");
  std::FILE* out = std::fopen(certificate_file.c_str(), "w");
  check(out != nullptr && PEM_write_X509(out, certificate.get()) == 1, "certificate file");
  std::fclose(out);
  out = std::fopen(key_file.c_str(), "w");
  check(out != nullptr && PEM_write_PrivateKey(out, key.get(), nullptr, nullptr, 0, nullptr, nullptr) == 1, "key file");
  std::fclose(out);
}

}  // namespace penstock::http
