// The KV transfer service: one I/O thread that owns the transport, the worker-to-worker control listener and the
// protocol's state machine (worker/core/transfer). It implements the engine's KvTransferPort.
// Owner: worker/app. Threads: port calls from the engine thread, lifecycle from the main thread; `on_event` and the
// probe are called on the I/O thread and must not block. Expiry runs on the I/O thread, whether the engine is busy or
// not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/base/id.hpp"
#include "common/time/clock.hpp"
#include "worker/core/transfer/options.hpp"
#include "worker/engine/kv_transfer.hpp"
#include "worker/engine/kv_transport.hpp"
#include "worker/transfer/channel.hpp"
#include "worker/transfer/device_pool.hpp"
#include "worker/transfer/probe.hpp"

namespace penstock::worker::transfer {

struct KvTransferConfig {
  TransferOptions options;
  InstanceId instance;
  std::string layout_fingerprint;  // as in Welcome; peers with another one are rejected
  std::string ticket_key;          // shared with the router
  std::string listen_host = "127.0.0.1";
  std::uint16_t listen_port = 0;      // 0: any
  std::string advertise_host;         // in address(); "" is listen_host
  ChannelTls tls;                     // of the control channel; null contexts: plain
  std::byte* pool = nullptr;          // KvPoolView::base
  int pool_file = -1;                 // KvPoolView::file
  DevicePool* pool_device = nullptr;  // has the pool, if `pool` is null; outlives the service
  DevicePoolFactory test_pools;       // with pool_device: on the same device, for the self-test
  std::uint32_t pool_blocks = 0;
  std::uint64_t block_bytes = 0;                   // KvGeometry::block_bytes()
  std::uint64_t self_test_bytes = 16ull << 20;     // 0 switches the self-test off
  double self_test_bytes_per_second_min = 100e6;   // below it start() fails
  Duration spin = std::chrono::microseconds(100);  // after the last activity, before sleeping on the event fd
};

class KvTransferService final : public KvTransferPort {
 public:
  using OnEvent = std::function<void(TransferEvent event)>;

  /// `make_transport` is called on the calling thread of start(): once for the service, twice for the self-test.
  /// `probe` may be null. References outlive the service.
  KvTransferService(KvTransferConfig config, KvTransportFactory make_transport, OnEvent on_event, const Clock& clock,
                    TransferProbe* probe = nullptr);
  ~KvTransferService() override;  // stops

  /// Self-test, registration, listener, thread. Throws std::runtime_error with one sentence that says what to do.
  void start();
  /// host:port of the control listener, for Welcome::kv_address. After start().
  std::string address() const;
  /// No new transfers; peers get a GOODBYE. Running ones go on.
  void drain();
  /// Closes links and joins the thread. No event is given out after it returns. Idempotent.
  void stop();

  void begin_send(const protocol::TransferRoute& route, RequestId request) override;
  void offer(OfferChunk chunk) override;
  void begin_receive(const protocol::TransferRoute& route, RequestId request, Duration deadline) override;
  void reserve(Reservation reservation) override;
  void refuse_reservation(TransferKey key, std::uint32_t chunk) override;
  void reoffer(const protocol::TransferRoute& route) override;
  void cancel(TransferKey key, std::string reason) override;

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace penstock::worker::transfer
