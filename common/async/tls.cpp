#include "common/async/tls.hpp"

#include <openssl/ssl.h>

#include <boost/asio/buffer.hpp>
#include <string_view>

#include "common/async/tls_context.hpp"
#include "common/async/tls_material.hpp"
#include "common/async/tls_renewal.hpp"

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

Result<void> load(ssl::context& context, const TlsFiles& files) {
  boost::system::error_code code;
  if (!files.certificate_file.empty()) {
    context.use_certificate_chain_file(files.certificate_file, code);
    if (code) return unusable("certificate", files.certificate_file, code);
    context.use_private_key_file(files.key_file, ssl::context::pem, code);
    if (code) return unusable("key", files.key_file, code);
    if (SSL_CTX_check_private_key(context.native_handle()) != 1) {
      return make_error(
          ErrorCode::invalid_argument,
          "the key file " + files.key_file + " does not belong to the certificate " + files.certificate_file);
    }
  }
  if (!files.ca_file.empty()) {
    context.load_verify_file(files.ca_file, code);
    if (code) return unusable("authority", files.ca_file, code);
  }
  return {};
}

Result<void> load(ssl::context& context, const TlsMaterial& material) {
  const auto unusable_text = [](std::string_view kind, const boost::system::error_code& code) {
    return make_error(ErrorCode::invalid_argument, "the " + std::string(kind) + " can't be used: " + code.message());
  };
  boost::system::error_code code;
  if (!material.certificate.empty()) {
    context.use_certificate_chain(boost::asio::buffer(material.certificate), code);
    if (code) return unusable_text("certificate", code);
    context.use_private_key(boost::asio::buffer(material.key), ssl::context::pem, code);
    if (code) return unusable_text("key", code);
    if (SSL_CTX_check_private_key(context.native_handle()) != 1) {
      return make_error(ErrorCode::invalid_argument, "the key does not belong to the certificate");
    }
  }
  if (!material.authorities.empty()) {
    context.add_certificate_authority(boost::asio::buffer(material.authorities), code);
    if (code) return unusable_text("authority", code);
  }
  return {};
}

Result<void> trust_system(ssl::context& context) {
  boost::system::error_code code;
  context.set_default_verify_paths(code);
  if (!code) return {};
  return make_error(ErrorCode::unavailable, "the system's certificate authorities can't be read: " + code.message());
}

Result<SslContextPtr> make_server(const TlsFiles& files) {
  auto context = std::make_shared<ssl::context>(ssl::context::tls_server);
  harden(*context);
  PENSTOCK_TRY_VOID(load(*context, files));
  SSL_CTX_set_alpn_select_cb(context->native_handle(), select_protocol, nullptr);
  if (!files.ca_file.empty()) context->set_verify_mode(ssl::verify_peer | ssl::verify_fail_if_no_peer_cert);
  return context;
}

template <class Source>
Result<SslContextPtr> make_client(const Source& source, bool trusts_system) {
  auto context = std::make_shared<ssl::context>(ssl::context::tls_client);
  harden(*context);
  PENSTOCK_TRY_VOID(load(*context, source));
  context->set_verify_mode(ssl::verify_peer);
  if (trusts_system) PENSTOCK_TRY_VOID(trust_system(*context));
  return context;
}

Result<SslContextPtr> make_client_of_files(const TlsFiles& files) {
  return make_client(files, files.ca_file.empty());
}

TlsContext::Stamps stamps_of(const TlsFiles& files) {
  TlsContext::Stamps stamps;
  for (const std::string* file : {&files.certificate_file, &files.key_file, &files.ca_file}) {
    stamps.push_back(file->empty() ? std::nullopt : base::stamp_of(*file));
  }
  return stamps;
}

/// The stamps are taken first: a change while we read is a change for renew().
Result<TlsContextPtr> make_renewable(const TlsFiles& files, TlsContext::Make make) {
  auto stamps = stamps_of(files);
  PENSTOCK_TRY(SslContextPtr first, make(files));
  auto tls = std::make_shared<TlsContext>(std::move(first));
  tls->files = files;
  tls->make = make;
  tls->stamps = std::move(stamps);
  return tls;
}

}  // namespace

Result<TlsContextPtr> make_tls_server(const TlsFiles& files) {
  if (files.certificate_file.empty()) {
    return make_error(ErrorCode::invalid_argument, "a TLS server needs a certificate file");
  }
  return make_renewable(files, make_server);
}

Result<TlsContextPtr> make_tls_client(const TlsFiles& files) {
  PENSTOCK_TRY(TlsContextPtr tls, make_renewable(files, make_client_of_files));
  tls->is_client = true;
  tls->server_name = files.server_name;
  return tls;
}

Result<TlsContextPtr> make_tls_client(const TlsMaterial& material) {
  PENSTOCK_TRY(SslContextPtr context, make_client(material, material.authorities.empty()));
  auto tls = std::make_shared<TlsContext>(std::move(context));
  tls->is_client = true;
  tls->server_name = material.server_name;
  return tls;
}

Result<bool> renew(const TlsContextPtr& tls) {
  if (tls->make == nullptr) return false;
  auto stamps = stamps_of(tls->files);
  if (stamps == tls->stamps) return false;
  PENSTOCK_TRY(SslContextPtr next, tls->make(tls->files));
  tls->replace(std::move(next));
  tls->stamps = std::move(stamps);
  return true;
}

}  // namespace penstock::async
