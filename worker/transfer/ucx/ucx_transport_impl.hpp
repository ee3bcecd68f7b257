// The UCX transport's class, shared by its sources: ucx_transport.cpp (start, endpoints, messages, progress),
// ucx_lanes.cpp (which way to read a peer's pool, and the ways by copy), ucx_reads.cpp (the ways through UCX) and
// ucx_device.cpp (pools in the memory of a device).
// Private to this folder. Thread: the transfer service's I/O thread.
#pragma once

#include <ucp/api/ucp.h>

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "worker/transfer/device_pool.hpp"
#include "worker/transfer/ucx/staging.hpp"
#include "worker/transfer/ucx/ucx_address.hpp"
#include "worker/transfer/ucx/ucx_transport.hpp"

namespace penstock::worker::transfer {

enum : unsigned { am_message = 1, am_read_request = 2, am_read_data = 3 };

/// What one data message carries at most. With its headers it fits one UCX segment (see set_segment_sizes()): UCX would
/// put a longer one together in a buffer of its own first, a third copy of every byte.
constexpr std::uint64_t piece_bytes_max = 32u << 10;
/// Data that we owe one peer at most; a peer that asks for more is not one of ours.
constexpr std::uint64_t owed_bytes_max = 1ull << 30;
/// Of it, what UCX has at a time: heartbeats and answers queue behind no more than this.
constexpr std::uint64_t posted_bytes_max = 4u << 20;
/// Pieces that one progress() posts to a peer at most, also if UCX takes each at once.
constexpr int pieces_max = 128;

/// Host memory beside a pool on a device. A slot for what arrives holds a whole read of the protocol's default size
/// (TransferOptions::quantum_bytes); while one is copied to the device the next ones fill. 80 MiB in all.
constexpr std::uint32_t arrival_slots = 4;
constexpr std::uint64_t arrival_slot_bytes = 16u << 20;
constexpr std::uint32_t departure_slots = 16;
constexpr std::uint64_t departure_slot_bytes = 1u << 20;

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

inline Error ucx_error(const char* what, ucs_status_t status) {
  return make_error(ErrorCode::unavailable, std::string(what) + ": " + ucs_status_string(status));
}

class UcxTransport final : public KvTransport {
 public:
  explicit UcxTransport(const UcxOptions& options);
  ~UcxTransport() override;

  std::string_view name() const override { return "ucx"; }
  Result<void> register_pool(const PoolMemory& pool) override;
  Result<base::Bytes> local_address() override;
  Result<void> connect(EndpointId endpoint, base::BytesView peer_address) override;
  Result<void> send(EndpointId endpoint, base::BytesView message) override;
  Result<void> post_read(EndpointId endpoint, ReadId read, std::span<const ReadRun> runs) override;
  void force_close(EndpointId endpoint) override;
  std::size_t progress(KvTransportEvents& events) override;
  int event_fd() const override { return event_fd_; }
  bool arm() override;
  KvLane lane(EndpointId endpoint) const override;
  std::string lane_reason(EndpointId endpoint) const override;
  std::string describe() const override;

 private:
  struct Endpoint {
    UcxTransport* owner = nullptr;
    EndpointId id = 0;
    ucp_ep_h ep = nullptr;
    ucp_rkey_h rkey = nullptr;
    UcxAddress peer;
    std::optional<KvLane> lane;               // settled at the first read
    std::optional<SharedMapping> mapping;     // of the peer's pool, on the lane `mapped`
    bool mapping_touched = false;             // since its pages were dropped
    std::unique_ptr<DevicePeer> device_peer;  // the peer's pool, on the lane `device_copy`
    std::string lane_reason;
    bool closed = false;
    void* closing = nullptr;         // the close request, if it is under way
    std::uint32_t operations = 0;    // gets and sends that UCX still has
    std::deque<OwedRun> owed;        // asked for by the peer, not posted yet
    std::uint64_t owed_bytes = 0;    // of `owed`
    std::uint64_t posted_bytes = 0;  // that UCX has
    std::uint64_t staged_bytes = 0;  // on their way from the device to host memory
  };
  struct PendingRead {
    Endpoint* endpoint = nullptr;
    std::vector<ReadRun> runs;        // by messages only
    std::uint32_t gets = 0;           // posted, not complete
    std::uint64_t bytes_missing = 0;  // by messages
    std::shared_ptr<std::byte> slot;  // by messages to a device: what `places` are in; null: not asked for yet
    std::vector<HostRun> places;      // of each run
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
    std::uint64_t data_bytes = 0;     // of a data message
    std::shared_ptr<std::byte> slot;  // that its data is in, if that isn't the pool
  };

  Endpoint* open(EndpointId id);
  void choose_lane(Endpoint& endpoint);
  void drop_mapped_pages();
  Result<void> read_by_copy(Endpoint& endpoint, std::span<const ReadRun> runs);
  std::size_t copy_from_host(KvTransportEvents& events);
  ucs_status_t post(Endpoint& endpoint, unsigned am, std::unique_ptr<Sending> sending, const void* data,
                    std::size_t bytes);
  Result<void> read_by_gets(Endpoint& endpoint, ReadId read, std::span<const ReadRun> runs);
  Result<void> read_by_messages(Endpoint& endpoint, ReadId read, std::span<const ReadRun> runs);
  Result<void> ask(Endpoint& endpoint, ReadId read, std::span<const ReadRun> runs);
  void get_done(const Get& get, ucs_status_t status);
  void end_read(ReadId read, PendingRead& pending, ucs_status_t status);
  void serve(base::BytesView request);
  std::size_t send_owed(Endpoint& endpoint);
  ucs_status_t post_piece(Endpoint& endpoint, const OwedPiece& piece, const std::byte* data,
                          std::shared_ptr<std::byte> slot);
  void take_data(const ReadDataHeader& header, base::BytesView data);

  Result<void> register_device(DevicePool& device);
  std::string describe_device() const;
  void choose_device_lane(Endpoint& endpoint);
  Result<void> read_by_device_copy(Endpoint& endpoint, ReadId read, std::span<const ReadRun> runs);
  void ask_staged();
  void land(ReadId read, PendingRead& pending);
  std::size_t end_copies();
  void stage_owed(Endpoint& endpoint);
  std::size_t send_staged();
  std::size_t post_departure(Endpoint& endpoint, const Departure& departure);

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
  std::unique_ptr<PoolShare> share_;  // null: the pool can't be mapped by others
  DevicePool* device_ = nullptr;      // has the pool, if base_ doesn't
  PinnedSlots arrival_slots_, departure_slots_;
  int event_fd_ = -1;
  std::map<EndpointId, std::unique_ptr<Endpoint>> endpoints_;
  std::map<ReadId, PendingRead> reads_;
  std::deque<HostRead> host_reads_;
  std::deque<ReadId> unasked_;                     // by messages to a device, without a slot yet
  std::vector<std::pair<ReadId, CopyId>> copies_;  // into our pool
  std::vector<Departure> departures_;              // out of it
  std::vector<std::pair<ReadId, EndpointId>> reads_done_;
  std::vector<std::pair<EndpointId, Error>> errors_;
  std::vector<base::Bytes> requests_;    // READ messages, served outside UCX's callback
  KvTransportEvents* events_ = nullptr;  // within progress()
};

}  // namespace penstock::worker::transfer
