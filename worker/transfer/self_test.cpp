#include "worker/transfer/self_test.hpp"

#include <algorithm>
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

void fill_with_pattern(KvPool& pool, std::uint64_t seed) {
  for (std::size_t i = 0; i < pool.bytes(); ++i) {
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    pool.data()[i] = static_cast<std::byte>(seed >> 56);
  }
}

/// The two ends of the test, and when all of it must be over. The transports end first.
struct Bench {
  KvPool source;
  KvPool target;
  std::unique_ptr<KvTransport> owner;
  std::unique_ptr<KvTransport> reader;
  const Clock& clock;
  TimePoint deadline;
};

Result<void> connect(Bench& bench) {
  PENSTOCK_TRY_VOID(bench.owner->register_pool({bench.source.data(), bench.source.bytes(), bench.source.file()}));
  PENSTOCK_TRY_VOID(bench.reader->register_pool({bench.target.data(), bench.target.bytes(), bench.target.file()}));
  PENSTOCK_TRY(const base::Bytes owner_address, bench.owner->local_address());
  PENSTOCK_TRY(const base::Bytes reader_address, bench.reader->local_address());
  PENSTOCK_TRY_VOID(bench.owner->connect(1, reader_address));
  return bench.reader->connect(1, owner_address);
}

/// Bytes a second of one read of everything.
Result<double> measure(Bench& bench, ReadId read) {
  Watcher watcher;
  fill_with_pattern(bench.source, read);
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
  if (std::memcmp(bench.source.data(), bench.target.data(), bench.source.bytes()) != 0) {
    return make_error(ErrorCode::data_loss, "a read brought wrong bytes");
  }
  return static_cast<double>(bench.source.bytes()) / std::max(seconds, 1e-9);
}

}  // namespace

Result<SelfTestReport> run_self_test(std::unique_ptr<KvTransport> owner, std::unique_ptr<KvTransport> reader,
                                     const SelfTestOptions& options, const Clock& clock) {
  PENSTOCK_TRY(KvPool source, KvPool::allocate(options.bytes));
  PENSTOCK_TRY(KvPool target, KvPool::allocate(options.bytes));
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
