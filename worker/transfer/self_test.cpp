#include "worker/transfer/self_test.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "worker/memory/kv_pool.hpp"

namespace penstock::worker::transfer {
namespace {

class Watcher final : public KvTransportEvents {
 public:
  void on_message(base::BytesView) override {}
  void on_read_done(EndpointId, ReadId read, Result<void> result) override {
    if (!result) error = result.error();
    done = read;
  }
  void on_endpoint_error(EndpointId, const Error& broken) override { error = broken; }
  ReadId done = 0;
  std::optional<Error> error;
};

/// A pool that can be filled and looked at: in host memory, or on a device with a copy in host memory.
class TestPool {
 public:
  static Result<TestPool> make(std::uint64_t bytes, const DevicePoolFactory& device_pools) {
    PENSTOCK_TRY(KvPool host, KvPool::allocate(bytes));
    TestPool pool(std::move(host));
    if (!device_pools) return pool;
    PENSTOCK_TRY(pool.device_, device_pools(bytes));
    PENSTOCK_TRY(pool.staging_, pool.device_->host_memory(bytes));
    return pool;
  }
  PoolMemory memory() const {
    if (device_) return {nullptr, host_.bytes(), -1, device_.get()};
    return {host_.data(), host_.bytes(), host_.file()};
  }
  std::uint64_t bytes() const { return host_.bytes(); }
  std::byte* content() const { return device_ ? staging_.get() : host_.data(); }
  /// Between content() and what transports see.
  Result<void> publish() const { return device_ ? wait_for(*device_, device_->copy_in(all())) : Result<void>(); }
  Result<void> fetch() const { return device_ ? wait_for(*device_, device_->copy_out(all())) : Result<void>(); }

 private:
  explicit TestPool(KvPool host) : host_(std::move(host)) {}
  std::array<HostRun, 1> all() const { return {{{staging_.get(), 0, host_.bytes()}}}; }

  KvPool host_;
  std::unique_ptr<DevicePool> device_;
  std::shared_ptr<std::byte> staging_;
};

Result<void> fill_with_pattern(const TestPool& pool, std::uint64_t seed) {
  for (std::size_t i = 0; i < pool.bytes(); ++i) {
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    pool.content()[i] = static_cast<std::byte>(seed >> 56);
  }
  return pool.publish();
}

/// The two ends of the test, and when all of it must be over. The transports end first.
struct Bench {
  TestPool source;
  TestPool target;
  std::unique_ptr<KvTransport> owner;
  std::unique_ptr<KvTransport> reader;
  const Clock& clock;
  TimePoint deadline;
};

Result<void> connect(Bench& bench) {
  PENSTOCK_TRY_VOID(bench.owner->register_pool(bench.source.memory()));
  PENSTOCK_TRY_VOID(bench.reader->register_pool(bench.target.memory()));
  PENSTOCK_TRY(const base::Bytes owner_address, bench.owner->local_address());
  PENSTOCK_TRY(const base::Bytes reader_address, bench.reader->local_address());
  PENSTOCK_TRY_VOID(bench.owner->connect(1, reader_address));
  return bench.reader->connect(1, owner_address);
}

/// Bytes a second of one read of everything.
Result<double> measure(Bench& bench, ReadId read) {
  Watcher watcher;
  PENSTOCK_TRY_VOID(fill_with_pattern(bench.source, read));
  const TimePoint begin = bench.clock.now();
  const ReadRun run{0, 0, bench.source.bytes()};
  PENSTOCK_TRY_VOID(bench.reader->post_read(1, read, {&run, 1}));
  while (watcher.done != read && !watcher.error) {
    bench.reader->progress(watcher);
    bench.owner->progress(watcher);
    if (bench.clock.now() > bench.deadline) {
      return make_error(ErrorCode::deadline_exceeded, "a read did not complete in time");
    }
  }
  if (watcher.error) return *watcher.error;
  const double seconds = std::chrono::duration<double>(bench.clock.now() - begin).count();
  PENSTOCK_TRY_VOID(bench.target.fetch());
  if (std::memcmp(bench.source.content(), bench.target.content(), bench.source.bytes()) != 0) {
    return make_error(ErrorCode::data_loss, "a read brought wrong bytes");
  }
  return static_cast<double>(bench.source.bytes()) / std::max(seconds, 1e-9);
}

}  // namespace

Result<SelfTestReport> run_self_test(std::unique_ptr<KvTransport> owner, std::unique_ptr<KvTransport> reader,
                                     const SelfTestOptions& options, const Clock& clock) {
  PENSTOCK_TRY(TestPool source, TestPool::make(options.bytes, options.device_pools));
  PENSTOCK_TRY(TestPool target, TestPool::make(options.bytes, options.device_pools));
  Bench bench{
      std::move(source), std::move(target), std::move(owner), std::move(reader), clock, clock.now() + options.longest};
  PENSTOCK_TRY_VOID(connect(bench));
  auto rate = measure(bench, 1);
  if (!rate) return rate.error();
  SelfTestReport report;
  report.lane = bench.reader->lane(1);
  while (report.tries < options.tries_max && report.bytes_per_second < options.bytes_per_second_min) {
    rate = measure(bench, 2 + report.tries);
    // A machine too slow for all tries is judged by those that it managed.
    if (!rate && rate.error().code == ErrorCode::deadline_exceeded && report.tries > 0) break;
    if (!rate) return rate.error();
    report.bytes_per_second = std::max(report.bytes_per_second, *rate);
    ++report.tries;
  }
  return report;
}

}  // namespace penstock::worker::transfer
