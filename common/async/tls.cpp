#include "common/async/tls.hpp"

#include <openssl/ssl.h>

#include <boost/asio/buffer.hpp>
#include <string_view>

#include "common/async/tls_context.hpp"
#include "common/async/tls_material.hpp"

namespace penstock::async {
namespace {

namespace ssl = boost::asio::ssl;

Error unusable(std::string_view kind, const std::string& file, const boost::system::error_code& code) {
  return make_error(ErrorCode::invalid_argument,
                    "the " + std::string(kind) + " file " + file + " can't be used: " + code.message());
}

void harden(ssl::context& context) {
  SSL_CTX_set_min_proto_version(context.native_handle(), TLS1_2_VERSION);
  SSL_CTX_set_options(context.native_handle(), SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  SSL_CTX_set_mode(context.native_handle(), SSL_MODE_RELEASE_BUFFERS);
}

/// We speak HTTP/1.1 only; a client that offers nothing we know goes on without.
int select_protocol(SSL*, const unsigned char** out, unsigned char* out_size, const unsigned char* in, unsigned in_size,
                    void*) {
  constexpr std::string_view wanted = "http/1.1";
  for (unsigned at = 0; at < in_size; at += 1u + in[at]) {
    if (std::string_view(reinterpret_cast<const char*>(in + at + 1), in[at]) == wanted) {
      *out = in + at + 1;
      *out_size = in[at];
      return SSL_TLSEXT_ERR_OK;
    }
  }
  return SSL_TLSEXT_ERR_NOACK;
}

Result<void> load(TlsContext& tls, const TlsFiles& files) {
  boost::system::error_code code;
  if (!files.certificate_file.empty()) {
    tls.context.use_certificate_chain_file(files.certificate_file, code);
    if (code) return unusable("certificate", files.certificate_file, code);
    tls.context.use_private_key_file(files.key_file, ssl::context::pem, code);
    if (code) return unusable("key", files.key_file, code);
    if (SSL_CTX_check_private_key(tls.context.native_handle()) != 1) {
      return make_error(
          ErrorCode::invalid_argument,
          "the key file " + files.key_file + " does not belong to the certificate " + files.certificate_file);
    }
  }
  if (!files.ca_file.empty()) {
    tls.context.load_verify_file(files.ca_file, code);
    if (code) return unusable("authority", files.ca_file, code);
  }
  return {};
}

Result<void> load(TlsContext& tls, const TlsMaterial& material) {
  const auto unusable_text = [](std::string_view kind, const boost::system::error_code& code) {
    return make_error(ErrorCode::invalid_argument, "the " + std::string(kind) + " can't be used: " + code.message());
  };
  boost::system::error_code code;
  if (!material.certificate.empty()) {
    tls.context.use_certificate_chain(boost::asio::buffer(material.certificate), code);
    if (code) return unusable_text("certificate", code);
    tls.context.use_private_key(boost::asio::buffer(material.key), ssl::context::pem, code);
    if (code) return unusable_text("key", code);
    if (SSL_CTX_check_private_key(tls.context.native_handle()) != 1) {
      return make_error(ErrorCode::invalid_argument, "the key does not belong to the certificate");
    }
  }
  if (!material.authorities.empty()) {
    tls.context.add_certificate_authority(boost::asio::buffer(material.authorities), code);
    if (code) return unusable_text("authority", code);
  }
  return {};
}

Result<void> trust_system(TlsContext& tls) {
  boost::system::error_code code;
  tls.context.set_default_verify_paths(code);
  if (!code) return {};
  return make_error(ErrorCode::unavailable, "the system's certificate authorities can't be read: " + code.message());
}

}  // namespace

Result<TlsContextPtr> make_tls_server(const TlsFiles& files) {
  if (files.certificate_file.empty()) {
    return make_error(ErrorCode::invalid_argument, "a TLS server needs a certificate file");
  }
  auto tls = std::make_shared<TlsContext>(ssl::context::tls_server);
  harden(tls->context);
  PENSTOCK_TRY_VOID(load(*tls, files));
  SSL_CTX_set_alpn_select_cb(tls->context.native_handle(), select_protocol, nullptr);
  if (!files.ca_file.empty()) tls->context.set_verify_mode(ssl::verify_peer | ssl::verify_fail_if_no_peer_cert);
  return tls;
}

Result<TlsContextPtr> make_tls_client(const TlsFiles& files) {
  auto tls = std::make_shared<TlsContext>(ssl::context::tls_client);
  tls->is_client = true;
  tls->server_name = files.server_name;
  harden(tls->context);
  PENSTOCK_TRY_VOID(load(*tls, files));
  tls->context.set_verify_mode(ssl::verify_peer);
  if (files.ca_file.empty()) PENSTOCK_TRY_VOID(trust_system(*tls));
  return tls;
}

Result<TlsContextPtr> make_tls_client(const TlsMaterial& material) {
  auto tls = std::make_shared<TlsContext>(ssl::context::tls_client);
  tls->is_client = true;
  tls->server_name = material.server_name;
  harden(tls->context);
  PENSTOCK_TRY_VOID(load(*tls, material));
  tls->context.set_verify_mode(ssl::verify_peer);
  if (material.authorities.empty()) PENSTOCK_TRY_VOID(trust_system(*tls));
  return tls;
}

}  // namespace penstock::async
