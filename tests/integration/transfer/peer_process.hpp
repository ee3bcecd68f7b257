// A prefill worker's transfer service in a child process, for the integration test and the benchmark: the parent is the
// decode side. The child offers what it is told to and ends with its pipe. One thread besides the services' own.
#pragma once

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

#include "common/protocol/ticket.hpp"
#include "worker/memory/kv_pool.hpp"
#include "worker/transfer/service.hpp"
#include "worker/transfer/ucx/ucx_transport.hpp"

namespace penstock::worker::transfer::test {

constexpr const char* ticket_key = "two processes";
/// A block of the default model: 16 tokens, 30 layers, 3 heads of 64, bf16.
constexpr std::uint64_t process_block_bytes = 16ull * 30 * 2 * 3 * 64 * 2;

struct Shared {  // in memory of both
  std::atomic<std::int64_t> offered_at{0};
};
struct Order {  // parent to child
  TransferId transfer;
  InstanceId decode;
  std::uint32_t blocks = 0;
  std::uint32_t ticket_bytes = 0;
  char ticket[512] = {};
};
struct Ready {  // child to parent
  InstanceId instance;
  char address[64] = {};
};

inline std::byte process_content(TransferId transfer, std::uint64_t offset) {
  return static_cast<std::byte>((offset * 2654435761ull + transfer.low * 97) >> 13 & 0xFF);
}

template <class T>
T value_or_throw(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(*result);
}

/// One side's pool: host memory, or a device's with a copy of its content in host memory.
class ProcessPool {
 public:
  explicit ProcessPool(std::uint32_t blocks, const DevicePoolFactory& device = {})
      : host_(value_or_throw(KvPool::allocate(blocks * process_block_bytes))) {
    if (!device) return;
    device_ = value_or_throw(device(host_.bytes()));
    copy_ = value_or_throw(device_->host_memory(host_.bytes()));
  }
  std::byte* data() const { return device_ ? copy_.get() : host_.data(); }
  std::uint64_t bytes() const { return host_.bytes(); }
  /// Between data() and the device, while no transfer runs: the device's pool belongs to the service's thread
  /// otherwise.
  void publish(std::uint64_t bytes) const { move(bytes, &DevicePool::copy_in); }
  void fetch(std::uint64_t bytes) const { move(bytes, &DevicePool::copy_out); }
  void put_into(KvTransferConfig& config) const {
    config.pool = device_ ? nullptr : host_.data();
    config.pool_file = device_ ? -1 : host_.file();
    config.pool_device = device_.get();
    config.pool_blocks = static_cast<std::uint32_t>(host_.bytes() / process_block_bytes);
  }

 private:
  void move(std::uint64_t bytes, Result<CopyId> (DevicePool::*way)(std::span<const HostRun>)) const {
    if (!device_) return;
    const HostRun run{copy_.get(), 0, bytes};
    auto done = wait_for(*device_, (*device_.*way)({&run, 1}));
    if (!done) throw std::runtime_error(done.error().message);
  }

  KvPool host_;
  std::unique_ptr<DevicePool> device_;
  std::shared_ptr<std::byte> copy_;
};

/// Remembers the lane that the service told, and how many transfers it fetches.
class LaneProbe final : public TransferProbe {
 public:
  void on_gauges(const TransferGauges& gauges) override {
    std::lock_guard lock(mutex_);
    receives_live_ = gauges.receives_live;
    changed_.notify_all();
  }
  bool wait_for_receives(std::uint64_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(10), [&] { return receives_live_ == count; });
  }
  void on_note(std::string_view what, std::string_view detail) override {
    if (what != "kv lane") return;
    std::lock_guard lock(mutex_);
    lane_ = detail;
  }
  std::string lane() const {
    std::lock_guard lock(mutex_);
    return lane_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::string lane_;
  std::uint64_t receives_live_ = 0;
};

inline KvTransferConfig process_config(InstanceId instance, const ProcessPool& pool) {
  KvTransferConfig config;
  config.instance = instance;
  config.layout_fingerprint = "test layout";
  config.ticket_key = ticket_key;
  pool.put_into(config);
  config.block_bytes = process_block_bytes;
  config.self_test_bytes = 0;
  return config;
}

/// Whether what the child sent has ended: only then are its blocks written again.
class SendWatch {
 public:
  void begin() {
    std::lock_guard lock(mutex_);
    ended_ = false;
  }
  void on_event(const TransferEvent& event) {
    if (!std::holds_alternative<SendEnded>(event)) return;
    std::lock_guard lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  }
  bool wait() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(10), [&] { return ended_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ended_ = true;
};

/// Of the control channel, each side's; null contexts: plain.
struct ProcessTls {
  ChannelTls prefill, decode;
};

[[noreturn]] inline void child_main(int pipe, Shared& shared, const UcxOptions& ucx, std::uint32_t pool_blocks,
                                    const ChannelTls& tls, const DevicePoolFactory& device) {
  int status = 0;
  try {
    const ProcessPool pool(pool_blocks, device);
    const SteadyClock clock;
    const auto instance = random_id<InstanceId>();
    KvTransferConfig config = process_config(instance, pool);
    config.tls = tls;
    SendWatch sends;
    KvTransferService service(
        std::move(config), [&] { return make_ucx_transport(ucx); },
        [&sends](const TransferEvent& event) { sends.on_event(event); }, clock);
    service.start();
    Ready ready{instance};
    std::snprintf(ready.address, sizeof ready.address, "%s", service.address().c_str());
    if (::write(pipe, &ready, sizeof ready) != static_cast<ssize_t>(sizeof ready)) ::_exit(3);
    Order order;
    TransferKey before;
    while (::read(pipe, &order, sizeof order) == static_cast<ssize_t>(sizeof order)) {
      const std::uint64_t bytes = order.blocks * process_block_bytes;
      service.cancel(before, "the next one comes");
      if (!sends.wait()) throw std::runtime_error("a transfer does not end");
      sends.begin();
      before = {order.transfer, 0};
      for (std::uint64_t i = 0; i < bytes; i += 61) pool.data()[i] = process_content(order.transfer, i);
      pool.publish(bytes);
      protocol::TransferRoute route{order.transfer, 0, order.decode, "", std::string(order.ticket, order.ticket_bytes)};
      service.begin_send(route, {});
      OfferChunk chunk;
      chunk.key = {order.transfer, 0};
      chunk.token_end = order.blocks * 16;
      chunk.last = true;
      for (BlockIndex block = 0; block < order.blocks; ++block) chunk.blocks.push_back(block);
      shared.offered_at = clock.now().time_since_epoch().count();
      service.offer(std::move(chunk));
    }
    service.stop();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "child: %s\n", error.what());
    status = 2;
  }
  ::_exit(status);
}

/// The child. Fork all that a test needs before the first service starts here: UCX's own threads don't survive it.
class PrefillProcess {
 public:
  PrefillProcess(const UcxOptions& ucx, std::uint32_t pool_blocks, const ChannelTls& tls = {},
                 const DevicePoolFactory& device = {}) {
    void* memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::runtime_error("no shared memory");
    shared_ = new (memory) Shared;
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) throw std::runtime_error("socketpair");
    child_ = ::fork();
    if (child_ == 0) {
      // Others' ends of pipes must not live on here: their processes would never see them close.
      ::dup2(ends[1], 3);
      ::close_range(4, ~0u, 0);
      child_main(3, *shared_, ucx, pool_blocks, tls, device);
    }
    ::close(ends[1]);
    pipe_ = ends[0];
    if (::recv(pipe_, &ready_, sizeof ready_, MSG_WAITALL) != static_cast<ssize_t>(sizeof ready_))
      throw std::runtime_error("no child");
  }
  ~PrefillProcess() {
    ::close(pipe_);
    if (!reaped_) ::waitpid(child_, nullptr, 0);
    ::munmap(shared_, sizeof(Shared));
  }
  PrefillProcess(const PrefillProcess&) = delete;
  PrefillProcess& operator=(const PrefillProcess&) = delete;

  const Ready& ready() const { return ready_; }
  TimePoint offered_at() const { return TimePoint(Duration(shared_->offered_at.load())); }
  bool send(const Order& order) const {
    return ::write(pipe_, &order, sizeof order) == static_cast<ssize_t>(sizeof order);
  }
  void signal(int number) {
    ::kill(child_, number);
    if (number != SIGKILL) return;
    ::waitpid(child_, nullptr, 0);
    reaped_ = true;
  }

 private:
  Shared* shared_ = nullptr;
  pid_t child_ = 0;
  int pipe_ = -1;
  bool reaped_ = false;
  Ready ready_;
};

/// The parent's end: a child, then its own service.
class ProcessPair {
 public:
  struct Outcome {
    bool complete = false;
    std::string error;
    Duration offer_to_commit{};
    std::uint64_t bytes = 0;
  };

  ProcessPair(std::unique_ptr<PrefillProcess> child, const UcxOptions& ucx, std::uint32_t pool_blocks,
              TransferOptions options = {}, const ChannelTls& tls = {}, const DevicePoolFactory& device = {})
      : pool_(pool_blocks, device), child_(std::move(child)) {
    KvTransferConfig config = process_config(instance_, pool_);
    config.options = options;
    config.tls = tls;
    service_ = std::make_unique<KvTransferService>(
        std::move(config), [ucx] { return make_ucx_transport(ucx); }, [this](TransferEvent e) { on_event(e); }, clock_,
        &probe_);
    service_->start();
  }
  ProcessPair(const UcxOptions& ucx, std::uint32_t pool_blocks, TransferOptions options = {},
              const ProcessTls& tls = {})
      : ProcessPair(std::make_unique<PrefillProcess>(ucx, pool_blocks, tls.prefill), ucx, pool_blocks, options,
                    tls.decode) {}
  ~ProcessPair() { service_->stop(); }

  void begin(std::uint32_t blocks) {
    transfer_ = random_id<TransferId>();
    outcome_ = {};
    ended_ = false;
    const Ready& owner = child_->ready();
    const std::string ticket =
        protocol::make_ticket(ticket_key, {transfer_, 0, owner.instance, instance_, 5, issued_now(), 60});
    Order order{transfer_, instance_, blocks, static_cast<std::uint32_t>(ticket.size())};
    std::memcpy(order.ticket, ticket.data(), ticket.size());
    service_->begin_receive({transfer_, 0, owner.instance, owner.address, ticket}, {}, std::chrono::seconds(20));
    if (!child_->send(order)) outcome_.error = "the child is gone";
  }
  Outcome wait(Duration longest) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, longest, [&] { return ended_; })) outcome_.error = "nothing came in time";
    return outcome_;
  }
  /// From now on blocks come to places in another order, so that no two are neighbours.
  void scatter() { scatters_ = true; }
  Outcome transfer(std::uint32_t blocks) {
    begin(blocks);
    return wait(std::chrono::seconds(20));
  }
  bool bytes_are_right(std::uint32_t blocks) const {
    pool_.fetch(blocks * process_block_bytes);
    for (std::uint64_t i = 0; i < blocks * process_block_bytes; i += 61) {
      const std::uint64_t block = i / process_block_bytes, within = i % process_block_bytes;
      const std::uint64_t sent = scatters_ ? blocks - 1 - block : block;
      if ((sent * process_block_bytes + within) % 61 != 0) continue;  // only each 61st byte was written
      if (pool_.data()[i] != process_content(transfer_, sent * process_block_bytes + within)) return false;
    }
    return true;
  }
  std::string lane() const { return probe_.lane(); }
  /// The service has ended what came before, and told so: asked before begin(), it makes has_begun() speak of begin().
  bool is_idle() { return probe_.wait_for_receives(0); }
  /// The service has taken up what begin() asked for.
  bool has_begun() { return probe_.wait_for_receives(1); }
  void signal_child(int number) { child_->signal(number); }

 private:
  /// As a router says it: its own time since it started.
  std::uint64_t issued_now() const {
    return static_cast<std::uint64_t>((clock_.now() - started_) / std::chrono::milliseconds(1));
  }
  void on_event(const TransferEvent& event) {
    if (const auto* wanted = std::get_if<ReserveBlocks>(&event)) {
      Reservation reservation{wanted->key, wanted->chunk, {}, {}};
      const std::uint32_t blocks = wanted->token_end / 16;
      for (BlockIndex block = 0; block < blocks; ++block) {
        reservation.local.push_back(scatters_ ? blocks - 1 - block : block);
      }
      return service_->reserve(std::move(reservation));
    }
    std::lock_guard lock(mutex_);
    if (const auto* complete = std::get_if<ReceiveComplete>(&event)) {
      outcome_ = {true, "", clock_.now() - child_->offered_at(), complete->bytes};
      ended_ = true;
    } else if (const auto* failed = std::get_if<ReceiveFailed>(&event)) {
      outcome_.error = failed->error.message;
      ended_ = true;
    }
    changed_.notify_all();
  }

  const SteadyClock clock_;
  const InstanceId instance_ = random_id<InstanceId>();
  const ProcessPool pool_;
  std::atomic<bool> scatters_{false};
  LaneProbe probe_;
  std::unique_ptr<PrefillProcess> child_;
  const TimePoint started_ = clock_.now();
  TransferId transfer_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ended_ = false;
  Outcome outcome_;
  std::unique_ptr<KvTransferService> service_;
};

}  // namespace penstock::worker::transfer::test
