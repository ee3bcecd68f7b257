#include "worker/transfer/ucx/ucx_transport.hpp"

#include <dlfcn.h>
#include <ucp/api/ucp.h>

#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <stdexcept>
#include <utility>

#include "common/base/id.hpp"
#include "worker/transfer/ucx/ucx_address.hpp"
#include "worker/transfer/ucx/ucx_transport_impl.hpp"

namespace penstock::worker::transfer {

// ---- Start and end ----

/// Whether UCX may use nothing but TCP (and a process's own memory).
static bool is_tcp_only(std::string tls) {
  if (const char* environment = std::getenv("UCX_TLS"); tls.empty() && environment != nullptr) tls = environment;
  return tls == "tcp" || tls == "tcp,self" || tls == "self,tcp";
}

/// Of UCX's transports, for data messages; what the environment says wins. A segment of shared memory holds one piece,
/// and is below the 64 KiB that UCX's 16-bit lengths can say. The queue holds 8 MiB: with UCX's 0.5 MiB, two processes
/// on a busy machine hand each other the core for every half megabyte. TCP: one system call a piece instead of four.
static void set_segment_sizes() {
  constexpr std::uint64_t headers_max = 128;
  ::setenv("UCX_MM_SEG_SIZE", std::to_string(piece_bytes_max + headers_max).c_str(), 0);
  ::setenv("UCX_MM_FIFO_SIZE", "256", 0);
  ::setenv("UCX_TCP_TX_SEG_SIZE", "64k", 0);
}

UcxTransport::UcxTransport(const UcxOptions& options) : options_(options), tcp_only_(is_tcp_only(options.tls)) {
  // Without it, endpoints with error handling fall from shared memory to TCP. What the environment says wins. Start-up
  // only: no other thread reads the environment yet.
  ::setenv("UCX_MM_ERROR_HANDLING", "y", 0);
  set_segment_sizes();
  base::random_bytes(&id_, sizeof id_);
  auto check = [](ucs_status_t status, const char* what) {
    if (status != UCS_OK) throw std::runtime_error(std::string("UCX: ") + what + ": " + ucs_status_string(status));
  };
  ucp_config_t* config = nullptr;
  check(ucp_config_read(nullptr, nullptr, &config), "the configuration in the environment can't be read");
  ucs_status_t status = UCS_OK;
  if (!options.tls.empty()) status = ucp_config_modify(config, "TLS", options.tls.c_str());
  if (status == UCS_OK && !options.net_devices.empty()) {
    status = ucp_config_modify(config, "NET_DEVICES", options.net_devices.c_str());
  }
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_RMA | UCP_FEATURE_WAKEUP;
  if (status == UCS_OK) status = ucp_init(&params, config, &context_);
  ucp_config_release(config);
  check(status, "no context; see the transports with `ucx_info -d`, and check UCX_TLS");
  ucp_worker_params_t worker_params{};
  worker_params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  worker_params.thread_mode = UCS_THREAD_MODE_SINGLE;
  status = ucp_worker_create(context_, &worker_params, &worker_);
  if (status == UCS_OK) status = ucp_worker_get_efd(worker_, &event_fd_);
  if (status != UCS_OK) {
    if (worker_ != nullptr) ucp_worker_destroy(worker_);
    ucp_cleanup(context_);
    check(status, "no worker");
  }
  set_handler(am_message, &UcxTransport::on_am_message);
  set_handler(am_read_request, &UcxTransport::on_am_request);
  set_handler(am_read_data, &UcxTransport::on_am_data);
}

void UcxTransport::set_handler(unsigned id, ucp_am_recv_callback_t handler) {
  ucp_am_handler_param_t param{};
  param.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS | UCP_AM_HANDLER_PARAM_FIELD_CB |
                     UCP_AM_HANDLER_PARAM_FIELD_ARG;
  param.id = id;
  param.flags = UCP_AM_FLAG_WHOLE_MSG;
  param.cb = handler;
  param.arg = this;
  if (ucp_worker_set_am_recv_handler(worker_, &param) != UCS_OK) throw std::runtime_error("UCX: no message handler");
}

UcxTransport::~UcxTransport() {
  std::vector<EndpointId> ids;
  for (const auto& [id, endpoint] : endpoints_) ids.push_back(id);
  for (EndpointId id : ids) force_close(id);
  if (device_ != nullptr) {
    device_->wait();
    reads_.clear();
  }
  for (int i = 0; i < 100'000 && !endpoints_.empty(); ++i) {
    ucp_worker_progress(worker_);
    reap();
  }
  if (memory_ != nullptr) ucp_mem_unmap(context_, memory_);
  ucp_worker_destroy(worker_);
  ucp_cleanup(context_);
}

std::string UcxTransport::describe() const {
  unsigned major = 0, minor = 0, release = 0;
  ucp_get_version(&major, &minor, &release);
  Dl_info info{};
  const bool found = ::dladdr(reinterpret_cast<const void*>(&ucp_get_version), &info) != 0 && info.dli_fname != nullptr;
  return "UCX " + std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(release) + " (" +
         (found ? info.dli_fname : "?") + "), transports " + (options_.tls.empty() ? "by environment" : options_.tls) +
         describe_device();
}

Result<void> UcxTransport::register_pool(const PoolMemory& pool) {
  bytes_ = pool.bytes;
  if (pool.device != nullptr) return register_device(*pool.device);
  ucp_mem_map_params_t params{};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
  params.address = pool.base;
  params.length = pool.bytes;
  const ucs_status_t status = ucp_mem_map(context_, &params, &memory_);
  if (status != UCS_OK) {
    return ucx_error("the KV pool can't be registered (raise the locked-memory limit, `ulimit -l`)", status);
  }
  base_ = pool.base;
  if (!tcp_only_) share_ = PoolShare::start(pool.file);
  return {};
}

Result<base::Bytes> UcxTransport::local_address() {
  ucp_address_t* worker = nullptr;
  std::size_t worker_bytes = 0;
  ucs_status_t status = ucp_worker_get_address(worker_, &worker, &worker_bytes);
  if (status != UCS_OK) return ucx_error("no worker address", status);
  const auto* worker_begin = reinterpret_cast<const std::byte*>(worker);
  UcxAddress address{id_,
                     reinterpret_cast<std::uint64_t>(base_),
                     bytes_,
                     host_,
                     own_host_key(),
                     share_ ? share_->key() : ShareKey{},
                     {worker_begin, worker_begin + worker_bytes},
                     {},
                     device_ != nullptr ? device_->handle() : base::Bytes()};
  ucp_worker_release_address(worker_, worker);
  if (device_ != nullptr) return encode(address);  // UCX doesn't know the pool
  void* rkey = nullptr;
  std::size_t rkey_bytes = 0;
  status = ucp_rkey_pack(context_, memory_, &rkey, &rkey_bytes);
  if (status != UCS_OK) return ucx_error("no remote key", status);
  address.rkey.assign(static_cast<std::byte*>(rkey), static_cast<std::byte*>(rkey) + rkey_bytes);
  ucp_rkey_buffer_release(rkey);
  return encode(address);
}

// ---- Endpoints ----

Result<void> UcxTransport::connect(EndpointId id, base::BytesView peer_address) {
  PENSTOCK_TRY(UcxAddress peer, decode_ucx_address(peer_address));
  auto endpoint = std::make_unique<Endpoint>();
  endpoint->owner = this;
  endpoint->id = id;
  endpoint->peer = std::move(peer);
  ucp_ep_params_t params{};
  params.field_mask =
      UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(endpoint->peer.worker.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = {&UcxTransport::on_broken, endpoint.get()};
  ucs_status_t status = ucp_ep_create(worker_, &params, &endpoint->ep);
  if (status != UCS_OK) return ucx_error("no endpoint to the peer", status);
  Endpoint& made = *endpoint;
  endpoints_.emplace(id, std::move(endpoint));
  if (made.peer.rkey.empty()) return {};  // a device has the pool: nothing is read through UCX
  status = ucp_ep_rkey_unpack(made.ep, made.peer.rkey.data(), &made.rkey);
  if (status == UCS_OK) return {};
  made.rkey = nullptr;
  if (options_.bulk != UcxBulk::gets) return {};  // nothing will be read through it
  force_close(id);
  return ucx_error("the peer's remote key can't be used", status);
}

UcxTransport::Endpoint* UcxTransport::open(EndpointId id) {
  auto found = endpoints_.find(id);
  return found == endpoints_.end() || found->second->closed ? nullptr : found->second.get();
}

void UcxTransport::force_close(EndpointId id) {
  Endpoint* endpoint = open(id);
  if (endpoint == nullptr) return;
  endpoint->closed = true;
  if (endpoint->operations == 0 && endpoint->rkey != nullptr) {
    ucp_rkey_destroy(endpoint->rkey);
    endpoint->rkey = nullptr;
  }
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  void* request = ucp_ep_close_nbx(endpoint->ep, &param);
  endpoint->closing = UCS_PTR_IS_PTR(request) ? request : nullptr;
  // Reads by messages write only from our own handler, which no longer finds them. Copies on the device go on: their
  // reads end with them.
  for (auto& [read, pending] : reads_) {
    if (pending.endpoint != endpoint) continue;
    pending.status = UCS_ERR_CANCELED;
    if (pending.bytes_missing > 0) end_read(read, pending, UCS_ERR_CANCELED);
  }
  endpoint->owed.clear();
  endpoint->owed_bytes = 0;
}

/// Frees closed endpoints that UCX has nothing of any more.
void UcxTransport::reap() {
  for (auto entry = endpoints_.begin(); entry != endpoints_.end();) {
    Endpoint& endpoint = *entry->second;
    if (endpoint.closing != nullptr && ucp_request_check_status(endpoint.closing) != UCS_INPROGRESS) {
      ucp_request_free(endpoint.closing);
      endpoint.closing = nullptr;
    }
    bool read_pending = false;
    for (const auto& [id, read] : reads_) read_pending |= read.endpoint == &endpoint;
    if (!endpoint.closed || endpoint.closing != nullptr || endpoint.operations > 0 || read_pending) {
      ++entry;
      continue;
    }
    if (endpoint.rkey != nullptr) ucp_rkey_destroy(endpoint.rkey);
    entry = endpoints_.erase(entry);
  }
}

void UcxTransport::on_broken(void* argument, ucp_ep_h, ucs_status_t status) {
  auto* endpoint = static_cast<Endpoint*>(argument);
  endpoint->owner->errors_.emplace_back(endpoint->id, ucx_error("the peer's endpoint broke", status));
}

// ---- Messages ----

ucs_status_t UcxTransport::post(Endpoint& endpoint, unsigned am, std::unique_ptr<Sending> sending, const void* data,
                                std::size_t bytes) {
  sending->endpoint = &endpoint;
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_AM_SEND_FLAG_EAGER;
  param.cb.send = &UcxTransport::on_sent;
  param.user_data = sending.get();
  void* request = ucp_am_send_nbx(endpoint.ep, am, sending->header.data(), sending->header.size(), data, bytes, &param);
  if (!UCS_PTR_IS_PTR(request)) return UCS_PTR_STATUS(request);
  ++endpoint.operations;
  endpoint.posted_bytes += sending->data_bytes;
  sending.release();  // on_sent() frees it
  return UCS_OK;
}

void UcxTransport::on_sent(void* request, ucs_status_t, void* user_data) {
  std::unique_ptr<Sending> sending(static_cast<Sending*>(user_data));
  --sending->endpoint->operations;
  sending->endpoint->posted_bytes -= sending->data_bytes;
  ucp_request_free(request);
}

Result<void> UcxTransport::send(EndpointId id, base::BytesView message) {
  Endpoint* endpoint = open(id);
  if (endpoint == nullptr) return {};  // closed meanwhile
  if (message.size() > kv_message_bytes_max) return make_error(ErrorCode::internal, "the message is too long");
  auto sending = std::make_unique<Sending>();
  sending->bytes.assign(message.begin(), message.end());
  const void* data = sending->bytes.data();
  const ucs_status_t status = post(*endpoint, am_message, std::move(sending), data, message.size());
  if (status != UCS_OK) return ucx_error("a message can't be sent", status);
  return {};
}

ucs_status_t UcxTransport::on_am_message(void* argument, const void*, size_t, void* data, size_t bytes,
                                         const ucp_am_recv_param_t* param) {
  auto* self = static_cast<UcxTransport*>(argument);
  const bool here = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0;
  if (here && self->events_ != nullptr && bytes <= kv_message_bytes_max) {
    self->events_->on_message({static_cast<const std::byte*>(data), bytes});
  }
  return UCS_OK;
}

// ---- Progress ----

bool UcxTransport::arm() {
  drop_mapped_pages();
  bool idle = host_reads_.empty() && requests_.empty() && reads_done_.empty() && errors_.empty();
  idle = idle && copies_.empty() && departures_.empty();  // devices wake nobody
  for (const auto& [id, endpoint] : endpoints_) idle = idle && (endpoint->owed.empty() || endpoint->posted_bytes > 0);
  return idle && ucp_worker_arm(worker_) == UCS_OK;
}

std::size_t UcxTransport::progress(KvTransportEvents& events) {
  events_ = &events;
  std::size_t work = 0;
  for (int i = 0; i < 64; ++i) {
    const unsigned count = ucp_worker_progress(worker_);
    work += count;
    if (count == 0) break;
  }
  for (const base::Bytes& request : std::exchange(requests_, {})) serve(request);
  if (device_ != nullptr) work += end_copies();
  for (const auto& [read, endpoint] : std::exchange(reads_done_, {})) {
    auto pending = reads_.find(read);
    if (pending == reads_.end()) continue;
    const ucs_status_t status = pending->second.status;
    reads_.erase(pending);
    ++work;
    events.on_read_done(endpoint, read, status == UCS_OK ? Result<void>() : ucx_error("a read failed", status));
  }
  if (device_ != nullptr) ask_staged();
  for (auto& [id, endpoint] : endpoints_) work += send_owed(*endpoint);
  if (device_ != nullptr) work += send_staged();
  work += copy_from_host(events);
  for (const auto& [endpoint, error] : std::exchange(errors_, {})) {
    if (open(endpoint) != nullptr) events.on_endpoint_error(endpoint, error);
  }
  reap();
  events_ = nullptr;
  return work;
}

std::unique_ptr<KvTransport> make_ucx_transport(const UcxOptions& options) {
  return std::make_unique<UcxTransport>(options);
}

}  // namespace penstock::worker::transfer
