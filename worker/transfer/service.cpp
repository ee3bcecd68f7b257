#include "worker/transfer/service.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/check.hpp"
#include "worker/transfer/channel.hpp"
#include "worker/transfer/driver.hpp"
#include "worker/transfer/self_test.hpp"

namespace penstock::worker::transfer {

class KvTransferService::Loop final : public ControlPlane, public ChannelEvents {
 public:
  Loop(KvTransferConfig config, KvTransportFactory make_transport, OnEvent on_event, const Clock& clock,
       TransferProbe* probe)
      : config_(std::move(config)),
        make_transport_(std::move(make_transport)),
        on_event_(std::move(on_event)),
        clock_(clock),
        probe_(probe != nullptr ? *probe : no_probe_) {}
  ~Loop() override { stop(); }

  void start();
  void stop();
  std::string address() const {
    const std::string& host = config_.advertise_host.empty() ? config_.listen_host : config_.advertise_host;
    return host + ":" + std::to_string(port_);
  }

  /// Runs `command` on the I/O thread; dropped once the service has stopped.
  void post(std::function<void(TransferMachine&, TimePoint)> command) {
    {
      std::lock_guard lock(mutex_);
      if (stopped_) return;
      commands_.push_back(std::move(command));
    }
    has_commands_.store(true, std::memory_order_seq_cst);
    if (sleeping_.load(std::memory_order_seq_cst)) wake();
  }

 private:
  static constexpr Duration sleep_max = std::chrono::milliseconds(50);  // UCX wake-ups have been missed before
  static constexpr Duration gauges_interval = std::chrono::milliseconds(250);

  void self_test();
  void open_channels();
  void run();
  void say_goodbye();
  std::size_t run_commands(TimePoint now);
  bool wait(Duration timeout);
  void sleep(TimePoint now);
  void wake() {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(wake_fd_, &one, sizeof one);
  }

  void dial(LinkId link, const std::string& address, base::Bytes hello) override {
    channels_->dial(link, address, std::move(hello));
  }
  void close(LinkId link) override { channels_->close(link); }
  HelloResult on_hello(base::BytesView frame) override { return driver_->on_hello(frame, clock_.now()); }
  void on_reply(LinkId link, base::BytesView frame) override { driver_->on_dial_reply(link, frame, clock_.now()); }
  void on_closed(LinkId link, const std::string& why) override { driver_->on_channel_closed(link, why, clock_.now()); }
  void on_dial_refused(LinkId link, const std::string& why) override {
    driver_->on_dial_refused(link, why, clock_.now());
  }
  void on_stranger(const std::string& who_and_why) override { probe_.on_note("kv peer not let in", who_and_why); }

  const KvTransferConfig config_;
  const KvTransportFactory make_transport_;
  const OnEvent on_event_;
  const Clock& clock_;
  TransferProbe no_probe_;
  TransferProbe& probe_;
  std::unique_ptr<Channels> channels_;  // from start() to stop()
  std::uint16_t port_ = 0;              // of its listener
  std::unique_ptr<KvTransport> transport_;
  std::unique_ptr<TransferDriver> driver_;
  std::thread thread_;
  int wake_fd_ = -1;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> sleeping_{false};
  std::atomic<bool> has_commands_{false};
  std::mutex mutex_;
  std::vector<std::function<void(TransferMachine&, TimePoint)>> commands_;  // under mutex_
  bool stopped_ = false;                                                    // under mutex_
  std::uint64_t empty_wakes_ = 0;
};

void KvTransferService::Loop::self_test() {
  if (config_.self_test_bytes == 0) return;
  auto owner = make_transport_();
  const std::string who = "the KV transport self-test (" + owner->describe() + ") failed: ";
  SelfTestOptions options;
  options.bytes = config_.self_test_bytes;
  options.bytes_per_second_min = config_.self_test_bytes_per_second_min;
  options.device_pools = config_.test_pools;
  auto report = run_self_test(std::move(owner), make_transport_(), options, clock_);
  if (!report) throw std::runtime_error(who + report.error().message + "; see `ucx_info -d` and UCX_TLS");
  probe_.on_self_test(report->bytes_per_second);
  const std::string measured = "lane " + std::string(to_string(report->lane)) + ", " +
                               std::to_string(report->bytes_per_second / 1e9) + " GB/s at best of " +
                               std::to_string(report->tries);
  if (report->bytes_per_second >= options.bytes_per_second_min) return probe_.on_note("kv transfer tested", measured);
  throw std::runtime_error(who + measured + " is below the floor of " +
                           std::to_string(options.bytes_per_second_min / 1e9) +
                           " GB/s; check UCX_TLS, the size of /dev/shm, the network device and the machine's load");
}

void KvTransferService::Loop::start() {
  PENSTOCK_CHECK((config_.pool != nullptr) != (config_.pool_device != nullptr));
  PENSTOCK_CHECK(config_.pool_blocks > 0 && config_.block_bytes > 0);
  self_test();
  transport_ = make_transport_();
  auto registered = transport_->register_pool(
      {config_.pool, config_.pool_blocks * config_.block_bytes, config_.pool_file, config_.pool_device});
  if (!registered) throw std::runtime_error("KV transfer: " + registered.error().message);
  auto address = transport_->local_address();
  if (!address) throw std::runtime_error("KV transfer: " + address.error().message);
  if (address->size() > address_bytes_max) throw std::runtime_error("KV transfer: the transport's address is too long");
  open_channels();
  LocalNode local{config_.instance,   config_.layout_fingerprint, std::string(transport_->name()),
                  config_.ticket_key, config_.pool_blocks,        config_.block_bytes,
                  std::move(*address)};
  driver_ = std::make_unique<TransferDriver>(config_.options, std::move(local), *transport_, *this, on_event_, clock_,
                                             probe_, config_.instance.low);
  wake_fd_ = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (wake_fd_ < 0) throw std::runtime_error("KV transfer: no eventfd; raise the limit on open files");
  probe_.on_note("kv transfer ready", transport_->describe());
  thread_ = std::thread([this] { run(); });
}

/// What they tell runs as a command on the I/O thread.
void KvTransferService::Loop::open_channels() {
  auto on_loop = [this](std::function<void()> call) {
    post([run = std::move(call)](TransferMachine&, TimePoint) { run(); });
  };
  channels_ = std::make_unique<Channels>(config_.tls, std::move(on_loop), *this);
  channels_->listen(config_.listen_host, config_.listen_port);
  port_ = channels_->port();
}

void KvTransferService::Loop::stop() {
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  stopping_ = true;
  if (wake_fd_ >= 0) wake();
  if (thread_.joinable()) thread_.join();
  channels_.reset();
  if (wake_fd_ >= 0) ::close(std::exchange(wake_fd_, -1));
}

std::size_t KvTransferService::Loop::run_commands(TimePoint now) {
  if (!has_commands_.exchange(false, std::memory_order_acq_rel)) return 0;
  decltype(commands_) batch;
  {
    std::lock_guard lock(mutex_);
    batch.swap(commands_);
  }
  for (auto& command : batch) command(driver_->machine(), now);
  driver_->carry_out(now);
  return batch.size();
}

/// Until the transport or a command wakes us, or the time is over. False: nothing came.
bool KvTransferService::Loop::wait(Duration timeout) {
  std::array<pollfd, 2> ready{{{wake_fd_, POLLIN, 0}, {transport_->event_fd(), POLLIN, 0}}};  // -1 is passed over
  const auto nanoseconds = std::max<std::int64_t>(0, timeout.count());
  const timespec limit{nanoseconds / 1'000'000'000, nanoseconds % 1'000'000'000};
  const int count = ::ppoll(ready.data(), ready.size(), &limit, nullptr);
  std::uint64_t drained = 0;
  [[maybe_unused]] const auto got = ::read(wake_fd_, &drained, sizeof drained);
  return count > 0;
}

/// Waits on the event descriptors until something comes, a deadline is due, or for a short while in any case.
void KvTransferService::Loop::sleep(TimePoint now) {
  const Duration longest = transport_->event_fd() >= 0 ? sleep_max : std::chrono::milliseconds(1);
  const TimePoint deadline = std::min(driver_->machine().next_deadline(), now + longest);
  sleeping_.store(true, std::memory_order_seq_cst);
  if (!has_commands_.load(std::memory_order_seq_cst)) {
    if (transport_->arm()) {
      if (!wait(deadline - now)) ++empty_wakes_;
    } else {
      std::this_thread::yield();  // what is on its way may need this core, at the peer
    }
  }
  sleeping_.store(false, std::memory_order_seq_cst);
}

void KvTransferService::Loop::run() {
  TimePoint active_at = clock_.now();
  TimePoint gauges_at = active_at;
  while (!stopping_) {
    TimePoint now = clock_.now();
    std::size_t work = run_commands(now);
    work += driver_->poll(now);
    if (work > 0) active_at = now;
    if (now >= gauges_at) {
      gauges_at = now + gauges_interval;
      TransferGauges gauges = driver_->machine().gauges(now);
      gauges.empty_wakes = empty_wakes_;
      probe_.on_gauges(gauges);
    }
    if (now - active_at > config_.spin) sleep(now);
  }
  say_goodbye();
  driver_.reset();
  transport_.reset();
}

/// Peers that hear it fail over at once; those that don't see their channel close.
void KvTransferService::Loop::say_goodbye() {
  driver_->machine().leave();
  driver_->carry_out(clock_.now());
  for (int i = 0; i < 16; ++i) driver_->poll(clock_.now());
}

// ---- The port ----

KvTransferService::KvTransferService(KvTransferConfig config, KvTransportFactory make_transport, OnEvent on_event,
                                     const Clock& clock, TransferProbe* probe)
    : loop_(std::make_unique<Loop>(std::move(config), std::move(make_transport), std::move(on_event), clock, probe)) {}

KvTransferService::~KvTransferService() = default;

void KvTransferService::start() {
  loop_->start();
}
std::string KvTransferService::address() const {
  return loop_->address();
}
void KvTransferService::stop() {
  loop_->stop();
}
void KvTransferService::drain() {
  loop_->post([](TransferMachine& machine, TimePoint) { machine.drain(); });
}

void KvTransferService::begin_send(const protocol::TransferRoute& route, RequestId) {
  loop_->post([route](TransferMachine& machine, TimePoint now) { machine.sender().begin_send(route, now); });
}

void KvTransferService::offer(OfferChunk chunk) {
  loop_->post([chunk = std::move(chunk)](TransferMachine& machine, TimePoint now) mutable {
    machine.sender().offer(std::move(chunk), now);
  });
}

void KvTransferService::begin_receive(const protocol::TransferRoute& route, RequestId, Duration deadline) {
  loop_->post([route, deadline](TransferMachine& machine, TimePoint now) {
    machine.receiver().begin_receive(route, deadline, now);
  });
}

void KvTransferService::reserve(Reservation reservation) {
  loop_->post([reservation = std::move(reservation)](TransferMachine& machine, TimePoint now) mutable {
    machine.receiver().reserve(std::move(reservation), now);
  });
}

void KvTransferService::refuse_reservation(TransferKey key, std::uint32_t chunk) {
  loop_->post([key, chunk](TransferMachine& machine, TimePoint now) {
    machine.receiver().refuse_reservation(key, chunk, now);
  });
}

void KvTransferService::reoffer(const protocol::TransferRoute& route) {
  loop_->post([route](TransferMachine& machine, TimePoint now) { machine.sender().reoffer(route, now); });
}

void KvTransferService::cancel(TransferKey key, std::string reason) {
  loop_->post(
      [key, reason = std::move(reason)](TransferMachine& machine, TimePoint now) { machine.cancel(key, reason, now); });
}

}  // namespace penstock::worker::transfer
