#include "common/kube/client/credentials.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <fstream>
#include <utility>

#include "common/async/tls_material.hpp"

namespace penstock::kube {
namespace {

constexpr std::streamsize file_bytes_max = 1 << 20;

/// All that the files say; compared to see whether anything changed.
struct Material {
  std::string authorities;
  std::string certificate;
  std::string key;
  std::string token;

  bool same_tls(const Material& other) const {
    return authorities == other.authorities && certificate == other.certificate && key == other.key;
  }
};

Result<std::string> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(static_cast<std::size_t>(file_bytes_max), '\0');
  file.read(text.data(), file_bytes_max);
  if (!file.is_open() || file.bad()) return make_error(ErrorCode::not_found, "cannot read " + path);
  if (file.gcount() == file_bytes_max) return make_error(ErrorCode::resource_exhausted, path + " is too large");
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

Result<std::string> read(const PemSource& source) {
  if (source.file.empty()) return source.text;
  PENSTOCK_TRY(std::string text, read_file(source.file));
  if (text.empty()) return make_error(ErrorCode::invalid_argument, source.file + " is empty");
  return text;
}

Result<std::string> read_token(const ClusterConfig& config) {
  if (config.token_file.empty()) return config.token;
  PENSTOCK_TRY(std::string token, read_file(config.token_file));
  while (!token.empty() && (token.back() == '\n' || token.back() == '\r' || token.back() == ' ')) token.pop_back();
  // A token becomes a header line: nothing but visible characters.
  for (const char c : token) {
    if (c <= ' ' || c > '~') return make_error(ErrorCode::invalid_argument, config.token_file + " holds no token");
  }
  if (token.empty()) return make_error(ErrorCode::invalid_argument, config.token_file + " is empty");
  return token;
}

Result<Material> read_material(const ClusterConfig& config) {
  Material material;
  PENSTOCK_TRY(material.token, read_token(config));
  if (config.transport == Transport::plain) return material;
  PENSTOCK_TRY(material.authorities, read(config.authority));
  PENSTOCK_TRY(material.certificate, read(config.client_certificate));
  PENSTOCK_TRY(material.key, read(config.client_key));
  return material;
}

/// Set while a read is under way, also if that is cancelled.
class Reading {
 public:
  explicit Reading(bool& flag) : flag_(flag) { flag_ = true; }
  ~Reading() { flag_ = false; }
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;

 private:
  bool& flag_;
};

asio::awaitable<Result<Material>> read_here(const ClusterConfig& config) {
  co_return read_material(config);
}

}  // namespace

struct Credentials::Impl {
  Impl(ClusterConfig config_, CredentialOptions options_, log::Logger logger_)
      : config(std::move(config_)), options(options_), logger(std::move(logger_)) {}

  Result<void> adopt(Material fresh) {
    if (config.transport == Transport::tls && (!loaded || !fresh.same_tls(material))) {
      async::TlsMaterial tls;
      tls.authorities = fresh.authorities;
      tls.certificate = fresh.certificate;
      tls.key = fresh.key;
      tls.server_name = config.server_name;
      PENSTOCK_TRY(current.tls, async::make_tls_client(tls));
      ++current.generation;
    }
    current.token = fresh.token;
    material = std::move(fresh);
    loaded = true;
    return {};
  }

  ClusterConfig config;
  CredentialOptions options;
  log::Logger logger;
  asio::thread_pool reader{1};
  Material material;
  Current current;
  bool loaded = false;
  bool reading = false;
  bool failing = false;
  TimePoint read_at{};  // start of the last good read
  TimePoint next_read{};
};

Credentials::Credentials(ClusterConfig config, CredentialOptions options, log::Logger logger)
    : impl_(std::make_unique<Impl>(std::move(config), options, std::move(logger))) {}
Credentials::~Credentials() = default;

const ClusterConfig& Credentials::config() const {
  return impl_->config;
}

void Credentials::reject(TimePoint request_started) {
  if (impl_->read_at <= request_started) impl_->next_read = {};
}

asio::awaitable<Result<const Credentials::Current*>> Credentials::current() {
  Impl& impl = *impl_;
  const TimePoint now = SteadyClock().now();
  const Current* held = &impl.current;
  // One read at a time is enough: who comes during it goes on with what there is.
  if (impl.loaded && (now < impl.next_read || impl.reading)) co_return held;
  const Reading reading(impl.reading);
  impl.next_read = now + impl.options.reread_every;
  Result<Material> fresh = co_await asio::co_spawn(impl.reader, read_here(impl.config), asio::use_awaitable);
  Result<void> done = fresh ? impl.adopt(std::move(*fresh)) : Result<void>(fresh.error());
  if (done) {
    impl.read_at = now;
    impl.failing = false;
    co_return held;
  }
  if (!impl.loaded) {
    impl.next_read = {};
    co_return done.error();
  }
  if (!std::exchange(impl.failing, true)) {
    impl.logger.warn("credentials can't be read again, the old ones stay", {{"error", done.error().message}});
  }
  co_return held;
}

}  // namespace penstock::kube
