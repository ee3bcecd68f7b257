#include "worker/transfer/self_test.hpp"

#include <algorithm>
#include <optional>

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

void fill_with_pattern(base::Bytes& bytes, std::uint64_t seed) {
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    bytes[i] = static_cast<std::byte>(seed >> 56);
  }
}

}  // namespace

Result<SelfTestReport> run_self_test(KvTransport& owner, KvTransport& reader, std::uint64_t bytes, const Clock& clock) {
  base::Bytes source(bytes), target(bytes);
  PENSTOCK_TRY_VOID(owner.register_pool(source.data(), bytes));
  PENSTOCK_TRY_VOID(reader.register_pool(target.data(), bytes));
  PENSTOCK_TRY(const base::Bytes owner_address, owner.local_address());
  PENSTOCK_TRY(const base::Bytes reader_address, reader.local_address());
  PENSTOCK_TRY_VOID(owner.connect(1, reader_address));
  PENSTOCK_TRY_VOID(reader.connect(1, owner_address));
  Watcher watcher;
  const TimePoint deadline = clock.now() + std::chrono::seconds(20);
  SelfTestReport report;
  for (ReadId read = 1; read <= 2 && !watcher.error; ++read) {
    fill_with_pattern(source, read);
    const TimePoint begin = clock.now();
    const ReadRun run{0, 0, bytes};
    PENSTOCK_TRY_VOID(reader.post_read(1, read, {&run, 1}));
    while (watcher.done != read && !watcher.error) {
      reader.progress(watcher);
      owner.progress(watcher);
      if (clock.now() > deadline) return make_error(ErrorCode::deadline_exceeded, "a read did not complete in 20 s");
    }
    const double seconds = std::chrono::duration<double>(clock.now() - begin).count();
    report.bytes_per_second = static_cast<double>(bytes) / std::max(seconds, 1e-9);
    if (!watcher.error && source != target) return make_error(ErrorCode::data_loss, "a read brought wrong bytes");
  }
  reader.force_close(1);
  owner.force_close(1);
  if (watcher.error) return *watcher.error;
  return report;
}

}  // namespace penstock::worker::transfer
