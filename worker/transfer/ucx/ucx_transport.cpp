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

namespace penstock::worker::transfer {
namespace {

enum : unsigned { am_message = 1, am_read_request = 2, am_read_data = 3 };

/// What one data message carries at most: large enough to amortise its cost, small enough for heartbeats to pass.
constexpr std::uint64_t piece_bytes_max = 256u << 10;
/// Data that we owe one peer at most; a peer that asks for more is not one of ours.
constexpr std::uint64_t owed_bytes_max = 1ull << 30;

struct ReadRequestHeader {
  std::uint64_t requester = 0;  // UcxAddress::transport
  std::uint64_t read = 0;
  std::uint32_t runs = 0;
  std::uint32_t padding = 0;
};
struct ReadDataHeader {
  std::uint64_t owner = 0;
  std::uint64_t read = 0;
  std::uint64_t run = 0;
  std::uint64_t offset = 0;  // within the run
};

Error ucx_error(const char* what, ucs_status_t status) {
  return make_error(ErrorCode::unavailable, std::string(what) + ": " + ucs_status_string(status));
}

enum class UcxLane : std::uint8_t { host_copy, gets, messages };

class UcxTransport final : public KvTransport {
 public:
  explicit UcxTransport(const UcxOptions& options);
  ~UcxTransport() override;

  std::string_view name() const override { return "ucx"; }
  Result<void> register_pool(std::byte* base, std::uint64_t bytes) override;
  Result<base::Bytes> local_address() override;
  Result<void> connect(EndpointId endpoint, base::BytesView peer_address) override;
  Result<void> send(EndpointId endpoint, base::BytesView message) override;
  Result<void> post_read(EndpointId endpoint, ReadId read, std::span<const ReadRun> runs) override;
  void force_close(EndpointId endpoint) override;
  std::size_t progress(KvTransportEvents& events) override;
  int event_fd() const override { return event_fd_; }
  bool arm() override;
  std::string describe() const override;

 private:
  struct Endpoint {
    UcxTransport* owner = nullptr;
    EndpointId id = 0;
    ucp_ep_h ep = nullptr;
    ucp_rkey_h rkey = nullptr;
    UcxAddress peer;
    UcxLane lane = UcxLane::messages;
    bool closed = false;
    void* closing = nullptr;       // the close request, if it is under way
    std::uint32_t operations = 0;  // gets and sends that UCX still has
    std::uint64_t owed_bytes = 0;
  };
  struct PendingRead {
    Endpoint* endpoint = nullptr;
    std::vector<ReadRun> runs;        // by messages only
    std::uint32_t gets = 0;           // posted, not complete
    std::uint64_t bytes_missing = 0;  // by messages
    ucs_status_t status = UCS_OK;
  };
  struct HostRead {
    EndpointId endpoint = 0;
    ReadId read = 0;
    std::vector<ReadRun> runs;
  };
  struct Get {
    UcxTransport* self = nullptr;
    Endpoint* endpoint = nullptr;
    ReadId read = 0;
  };
  struct Sending {  // owns what UCX reads from until the send is done
    Endpoint* endpoint = nullptr;
    base::Bytes header;
    base::Bytes bytes;
    std::uint64_t owed = 0;
  };

  Endpoint* open(EndpointId id);
  UcxLane lane_to(const UcxAddress& peer) const;
  std::size_t copy_from_host(KvTransportEvents& events);
  ucs_status_t post(Endpoint& endpoint, unsigned am, std::unique_ptr<Sending> sending, const void* data,
                    std::size_t bytes);
  Result<void> read_by_gets(Endpoint& endpoint, ReadId read, std::span<const ReadRun> runs);
  Result<void> read_by_messages(Endpoint& endpoint, ReadId read, std::span<const ReadRun> runs);
  void get_done(const Get& get, ucs_status_t status);
  void serve(base::BytesView request);
  void take_data(const ReadDataHeader& header, base::BytesView data);
  void reap();
  void set_handler(unsigned id, ucp_am_recv_callback_t handler);

  static void on_get(void* request, ucs_status_t status, void* user_data);
  static void on_sent(void* request, ucs_status_t status, void* user_data);
  static void on_broken(void* argument, ucp_ep_h ep, ucs_status_t status);
  static ucs_status_t on_am_message(void*, const void*, size_t, void*, size_t, const ucp_am_recv_param_t*);
  static ucs_status_t on_am_request(void*, const void*, size_t, void*, size_t, const ucp_am_recv_param_t*);
  static ucs_status_t on_am_data(void*, const void*, size_t, void*, size_t, const ucp_am_recv_param_t*);

  UcxOptions options_;
  const bool tcp_only_;
  std::uint64_t id_ = 0;
  std::string host_ = host_identity();
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  ucp_mem_h memory_ = nullptr;
  std::byte* base_ = nullptr;
  std::uint64_t bytes_ = 0;
  int event_fd_ = -1;
  std::map<EndpointId, std::unique_ptr<Endpoint>> endpoints_;
  std::map<ReadId, PendingRead> reads_;
  std::deque<HostRead> host_reads_;
  std::vector<std::pair<ReadId, EndpointId>> reads_done_;
  std::vector<std::pair<EndpointId, Error>> errors_;
  std::vector<base::Bytes> requests_;    // READ messages, served outside UCX's callback
  KvTransportEvents* events_ = nullptr;  // within progress()
};

// ---- Start and end ----

/// Whether UCX may use nothing but TCP (and a process's own memory).
bool is_tcp_only(std::string tls) {
  if (const char* environment = std::getenv("UCX_TLS"); tls.empty() && environment != nullptr) tls = environment;
  return tls == "tcp" || tls == "tcp,self" || tls == "self,tcp";
}

UcxTransport::UcxTransport(const UcxOptions& options) : options_(options), tcp_only_(is_tcp_only(options.tls)) {
  // Without it, endpoints with error handling fall from shared memory to TCP. What the environment says wins. Start-up
  // only: no other thread reads the environment yet.
  ::setenv("UCX_MM_ERROR_HANDLING", "y", 0);
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
         (found ? info.dli_fname : "?") + "), transports " + (options_.tls.empty() ? "by environment" : options_.tls);
}

Result<void> UcxTransport::register_pool(std::byte* base, std::uint64_t bytes) {
  ucp_mem_map_params_t params{};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
  params.address = base;
  params.length = bytes;
  const ucs_status_t status = ucp_mem_map(context_, &params, &memory_);
  if (status != UCS_OK) {
    return ucx_error("the KV pool can't be registered (raise the locked-memory limit, `ulimit -l`)", status);
  }
  base_ = base;
  bytes_ = bytes;
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
                     {worker_begin, worker_begin + worker_bytes},
                     {}};
  ucp_worker_release_address(worker_, worker);
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
  endpoint->lane = lane_to(endpoint->peer);
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
  status = ucp_ep_rkey_unpack(made.ep, made.peer.rkey.data(), &made.rkey);
  if (status == UCS_OK) return {};
  made.rkey = nullptr;
  if (made.lane != UcxLane::gets) return {};  // nothing will be read through it
  force_close(id);
  return ucx_error("the peer's remote key can't be used", status);
}

UcxLane UcxTransport::lane_to(const UcxAddress& peer) const {
  switch (options_.bulk) {
    case UcxBulk::gets:
      return UcxLane::gets;
    case UcxBulk::messages:
      return UcxLane::messages;
    case UcxBulk::automatic:
      break;
  }
  const bool here = !tcp_only_ && peer.host == host_ && can_read_from(peer.process);
  return here ? UcxLane::host_copy : UcxLane::messages;
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
  // Reads by messages write only from our own handler, which no longer finds them.
  for (auto read = reads_.begin(); read != reads_.end();) {
    const bool by_messages = read->second.endpoint == endpoint && read->second.bytes_missing > 0;
    if (by_messages) {
      read->second.status = UCS_ERR_CANCELED;
      read->second.bytes_missing = 0;
      reads_done_.emplace_back(read->first, id);
    }
    ++read;
  }
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
  endpoint.owed_bytes += sending->owed;
  sending.release();  // on_sent() frees it
  return UCS_OK;
}

void UcxTransport::on_sent(void* request, ucs_status_t, void* user_data) {
  std::unique_ptr<Sending> sending(static_cast<Sending*>(user_data));
  --sending->endpoint->operations;
  sending->endpoint->owed_bytes -= sending->owed;
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

// ---- Reads ----

Result<void> UcxTransport::post_read(EndpointId id, ReadId read, std::span<const ReadRun> runs) {
  Endpoint* endpoint = open(id);
  if (endpoint == nullptr) return make_error(ErrorCode::unavailable, "the endpoint is closed");
  if (runs.empty()) return make_error(ErrorCode::internal, "an empty read");
  for (const ReadRun& run : runs) {
    const bool inside = run.bytes > 0 && run.bytes <= bytes_ && run.local_offset <= bytes_ - run.bytes &&
                        run.bytes <= endpoint->peer.pool_bytes &&
                        run.remote_offset <= endpoint->peer.pool_bytes - run.bytes;
    if (!inside) return make_error(ErrorCode::internal, "the read is out of bounds");
  }
  switch (endpoint->lane) {
    case UcxLane::gets:
      return read_by_gets(*endpoint, read, runs);
    case UcxLane::messages:
      return read_by_messages(*endpoint, read, runs);
    case UcxLane::host_copy:
      break;
  }
  host_reads_.push_back({id, read, {runs.begin(), runs.end()}});
  return {};
}

/// One read a call, so that messages pass between them.
std::size_t UcxTransport::copy_from_host(KvTransportEvents& events) {
  if (host_reads_.empty()) return 0;
  const HostRead read = std::move(host_reads_.front());
  host_reads_.pop_front();
  Result<void> result = make_error(ErrorCode::aborted, "the endpoint was closed");
  if (const Endpoint* endpoint = open(read.endpoint)) {
    result = read_from(endpoint->peer.process, endpoint->peer.pool_base, base_, read.runs);
  }
  events.on_read_done(read.endpoint, read.read, result);
  return 1;
}

Result<void> UcxTransport::read_by_gets(Endpoint& endpoint, ReadId read, std::span<const ReadRun> runs) {
  PendingRead& pending = reads_[read];
  pending.endpoint = &endpoint;
  pending.gets = 1;  // ours, so that it doesn't end before all are posted
  for (const ReadRun& run : runs) {
    auto get = std::make_unique<Get>(Get{this, &endpoint, read});
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    param.cb.send = &UcxTransport::on_get;
    param.user_data = get.get();
    void* request = ucp_get_nbx(endpoint.ep, base_ + run.local_offset, run.bytes,
                                endpoint.peer.pool_base + run.remote_offset, endpoint.rkey, &param);
    if (UCS_PTR_IS_PTR(request)) {
      ++pending.gets;
      ++endpoint.operations;
      get.release();  // on_get() frees it
    } else if (UCS_PTR_IS_ERR(request)) {
      pending.status = UCS_PTR_STATUS(request);
      break;
    }
  }
  ++endpoint.operations;
  get_done({this, &endpoint, read}, UCS_OK);
  return {};
}

void UcxTransport::on_get(void* request, ucs_status_t status, void* user_data) {
  std::unique_ptr<Get> get(static_cast<Get*>(user_data));
  ucp_request_free(request);
  get->self->get_done(*get, status);
}

void UcxTransport::get_done(const Get& get, ucs_status_t status) {
  --get.endpoint->operations;
  PendingRead& pending = reads_.at(get.read);
  if (status != UCS_OK) pending.status = status;
  if (--pending.gets == 0) reads_done_.emplace_back(get.read, get.endpoint->id);
}

Result<void> UcxTransport::read_by_messages(Endpoint& endpoint, ReadId read, std::span<const ReadRun> runs) {
  auto sending = std::make_unique<Sending>();
  base::ByteWriter writer(sending->bytes);
  writer.write(ReadRequestHeader{id_, read, static_cast<std::uint32_t>(runs.size())});
  PendingRead pending;
  pending.endpoint = &endpoint;
  for (const ReadRun& run : runs) {
    writer.write(run.remote_offset);
    writer.write(run.bytes);
    pending.bytes_missing += run.bytes;
    pending.runs.push_back(run);
  }
  const void* data = sending->bytes.data();
  const std::size_t bytes = sending->bytes.size();
  const ucs_status_t status = post(endpoint, am_read_request, std::move(sending), data, bytes);
  if (status != UCS_OK) return ucx_error("a read request can't be sent", status);
  reads_[read] = std::move(pending);
  return {};
}

ucs_status_t UcxTransport::on_am_request(void* argument, const void*, size_t, void* data, size_t bytes,
                                         const ucp_am_recv_param_t* param) {
  auto* self = static_cast<UcxTransport*>(argument);
  if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0 && bytes <= kv_message_bytes_max) {
    const auto* begin = static_cast<const std::byte*>(data);
    self->requests_.emplace_back(begin, begin + bytes);
  }
  return UCS_OK;
}

/// The owner's side of a read by messages. Whether the bytes are still the offered ones is for DONE to find out.
void UcxTransport::serve(base::BytesView request) {
  base::ByteReader reader(request);
  const auto header = reader.read<ReadRequestHeader>();
  if (!reader.ok() || std::uint64_t{header.runs} * 16 != reader.left()) return;
  Endpoint* endpoint = nullptr;
  for (auto& [id, candidate] : endpoints_) {
    if (candidate->peer.transport == header.requester && !candidate->closed) endpoint = candidate.get();
  }
  if (endpoint == nullptr) return;
  for (std::uint64_t run = 0; run < header.runs; ++run) {
    const auto offset = reader.read<std::uint64_t>();
    const auto bytes = reader.read<std::uint64_t>();
    if (bytes > bytes_ || offset > bytes_ - bytes || endpoint->owed_bytes + bytes > owed_bytes_max) return;
    for (std::uint64_t sent = 0; sent < bytes;) {
      const std::uint64_t piece = std::min(piece_bytes_max, bytes - sent);
      auto sending = std::make_unique<Sending>();
      base::ByteWriter(sending->header).write(ReadDataHeader{id_, header.read, run, sent});
      sending->owed = piece;
      if (post(*endpoint, am_read_data, std::move(sending), base_ + offset + sent, piece) != UCS_OK) return;
      sent += piece;
    }
  }
}

ucs_status_t UcxTransport::on_am_data(void* argument, const void* header, size_t header_bytes, void* data, size_t bytes,
                                      const ucp_am_recv_param_t* param) {
  ReadDataHeader parsed;
  if (header_bytes != sizeof parsed || (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) return UCS_OK;
  std::memcpy(&parsed, header, sizeof parsed);
  static_cast<UcxTransport*>(argument)->take_data(parsed, {static_cast<const std::byte*>(data), bytes});
  return UCS_OK;
}

void UcxTransport::take_data(const ReadDataHeader& header, base::BytesView data) {
  auto found = reads_.find(header.read);
  if (found == reads_.end() || found->second.bytes_missing == 0) return;  // ended meanwhile
  PendingRead& pending = found->second;
  if (pending.endpoint->peer.transport != header.owner || header.run >= pending.runs.size()) return;
  const ReadRun& run = pending.runs[header.run];
  const bool inside =
      data.size() <= run.bytes && header.offset <= run.bytes - data.size() && data.size() <= pending.bytes_missing;
  if (!inside) return;
  std::memcpy(base_ + run.local_offset + header.offset, data.data(), data.size());
  pending.bytes_missing -= data.size();
  if (pending.bytes_missing == 0) reads_done_.emplace_back(header.read, pending.endpoint->id);
}

// ---- Progress ----

bool UcxTransport::arm() {
  const bool idle = host_reads_.empty() && requests_.empty() && reads_done_.empty() && errors_.empty();
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
  for (const auto& [read, endpoint] : std::exchange(reads_done_, {})) {
    auto pending = reads_.find(read);
    if (pending == reads_.end()) continue;
    const ucs_status_t status = pending->second.status;
    reads_.erase(pending);
    ++work;
    events.on_read_done(endpoint, read, status == UCS_OK ? Result<void>() : ucx_error("a read failed", status));
  }
  work += copy_from_host(events);
  for (const auto& [endpoint, error] : std::exchange(errors_, {})) {
    if (open(endpoint) != nullptr) events.on_endpoint_error(endpoint, error);
  }
  reap();
  events_ = nullptr;
  return work;
}

}  // namespace

std::unique_ptr<KvTransport> make_ucx_transport(const UcxOptions& options) {
  return std::make_unique<UcxTransport>(options);
}

}  // namespace penstock::worker::transfer
