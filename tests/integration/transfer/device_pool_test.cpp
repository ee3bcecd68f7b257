// UCX transports with pools on devices, in one process: which lane is taken, and that every byte comes to its place on
// each, also between a device and a processor. The devices are fakes whose copies end late.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>

#include "common/time/clock.hpp"
#include "tests/support/fake_device_pool.hpp"
#include "worker/transfer/ucx/ucx_address.hpp"
#include "worker/transfer/ucx/ucx_transport.hpp"

namespace penstock::worker::transfer::test {
namespace {

constexpr std::uint64_t pool_bytes = 3u << 20;

struct Watcher final : KvTransportEvents {
  void on_message(base::BytesView) override {}
  void on_read_done(EndpointId, ReadId read, Result<void> result) override { done.emplace(read, std::move(result)); }
  void on_endpoint_error(EndpointId, const Error& error) override { broken = error; }
  std::map<ReadId, Result<void>> done;
  std::optional<Error> broken;
};

/// One worker: a pool, and a transport to it.
struct Side {
  Side(FakeDevices* devices, const UcxOptions& options) {
    if (devices != nullptr) {
      device = std::make_unique<FakeDevicePool>(*devices, pool_bytes);
    } else {
      host.resize(pool_bytes);
    }
    transport = make_ucx_transport(options);
    const auto registered = device ? transport->register_pool({nullptr, pool_bytes, -1, device.get()})
                                   : transport->register_pool({host.data(), pool_bytes, -1});
    EXPECT_TRUE(registered) << registered.error().message;
  }
  std::vector<std::byte>& memory() { return device ? device->memory() : host; }

  std::unique_ptr<FakeDevicePool> device;
  std::vector<std::byte> host;
  std::unique_ptr<KvTransport> transport;
  Watcher watcher;
};

class DevicePools : public testing::Test {
 protected:
  void connect(FakeDevices* owner_devices, FakeDevices* reader_devices, const UcxOptions& options = {}) {
    owner_.emplace(owner_devices, options);
    reader_.emplace(reader_devices, options);
    fill(owner_->memory());
    const auto owner = owner_->transport->local_address(), reader = reader_->transport->local_address();
    ASSERT_TRUE(owner && reader);
    ASSERT_TRUE(owner_->transport->connect(1, *reader));
    ASSERT_TRUE(reader_->transport->connect(1, *owner));
  }
  /// With a pattern whose length has no divisor in common with any run's.
  static void fill(std::vector<std::byte>& memory) {
    std::vector<std::byte> pattern(65'537);
    for (std::uint64_t i = 0; i < pattern.size(); ++i) pattern[i] = static_cast<std::byte>(i * 2654435761ull >> 13);
    for (std::size_t at = 0; at < memory.size(); at += pattern.size()) {
      std::memcpy(memory.data() + at, pattern.data(), std::min(pattern.size(), memory.size() - at));
    }
  }

  template <class Condition>
  bool progress_until(Condition condition) {
    const TimePoint end = clock_.now() + std::chrono::seconds(20);
    while (!condition()) {
      if (clock_.now() > end) return false;
      owner_->transport->progress(owner_->watcher);
      reader_->transport->progress(reader_->watcher);
    }
    return true;
  }
  bool is_done(ReadId read) { return reader_->watcher.done.contains(read); }

  /// Runs of odd sizes and orders, 1.75 MiB in all: more than one slot of what leaves.
  static std::vector<ReadRun> scattered() {
    return {
        {1u << 17, 9u << 17, 5u << 17}, {100, 3, 77}, {17u << 17, 15u << 17, 6u << 17}, {7u << 17, 1u << 17, 3u << 17}};
  }
  void expect_read(std::span<const ReadRun> runs) {
    for (const ReadRun& run : runs) {
      const bool equal = std::memcmp(reader_->memory().data() + run.local_offset,
                                     owner_->memory().data() + run.remote_offset, run.bytes) == 0;
      EXPECT_TRUE(equal) << run.bytes << " bytes at " << run.local_offset;
    }
    EXPECT_EQ(reader_->memory()[pool_bytes - 1], std::byte{}) << "nothing else was written";
  }
  /// Six reads at once, of which not all find a slot: each must bring all its bytes.
  void read_and_compare(KvLane lane) {
    const auto runs = scattered();
    for (ReadId read = 1; read <= 6; ++read) ASSERT_TRUE(reader_->transport->post_read(1, read, runs));
    ASSERT_TRUE(progress_until([&] { return reader_->watcher.done.size() == 6; }));
    for (const auto& [read, result] : reader_->watcher.done) EXPECT_TRUE(result) << result.error().message;
    EXPECT_EQ(reader_->transport->lane(1), lane);
    expect_read(runs);
  }

  const SteadyClock clock_;
  FakeDevices devices_;
  std::optional<Side> owner_, reader_;
};

TEST_F(DevicePools, PoolsInReachAreReadByDeviceCopies) {
  connect(&devices_, &devices_);
  read_and_compare(KvLane::device_copy);
  EXPECT_EQ(reader_->device->copies_queued(), 6u) << "one for each read, none through host memory";
  EXPECT_EQ(owner_->device->copies_queued(), 0u);
  EXPECT_EQ(reader_->transport->lane_reason(1), "");
}

TEST_F(DevicePools, PoolsOutOfReachGoThroughHostMemoryAndSayWhy) {
  devices_.in_reach = false;
  connect(&devices_, &devices_);
  read_and_compare(KvLane::messages);
  EXPECT_EQ(reader_->transport->lane_reason(1), "out of reach");
}

TEST_F(DevicePools, TcpAsAskedForMeansNoDeviceCopies) {
  UcxOptions tcp;
  tcp.tls = "tcp,self";
  connect(&devices_, &devices_, tcp);
  read_and_compare(KvLane::messages);
}

TEST_F(DevicePools, AProcessorReadsFromADevice) {
  connect(&devices_, nullptr);
  read_and_compare(KvLane::messages);
}

TEST_F(DevicePools, ADeviceReadsFromAProcessor) {
  connect(nullptr, &devices_);
  read_and_compare(KvLane::messages);
}

TEST_F(DevicePools, ALaneOfTheProcessorsIsRefusedByName) {
  for (const UcxBulk bulk : {UcxBulk::gets, UcxBulk::process_copy}) {
    UcxOptions options;
    options.bulk = bulk;
    FakeDevicePool pool(devices_, pool_bytes);
    const auto registered = make_ucx_transport(options)->register_pool({nullptr, pool_bytes, -1, &pool});
    ASSERT_FALSE(registered);
    EXPECT_EQ(registered.error().code, ErrorCode::unsupported);
  }
}

TEST_F(DevicePools, ReadsEndOnlyWithTheirCopiesAlsoAfterAForcedClose) {
  for (const bool in_reach : {true, false}) {
    devices_.in_reach = in_reach;
    connect(&devices_, &devices_);
    reader_->device->end_after(1'000'000'000);
    const auto runs = scattered();
    ASSERT_TRUE(reader_->transport->post_read(1, 1, runs));
    ASSERT_TRUE(progress_until([&] { return reader_->device->copies_queued() == 1; }));
    reader_->transport->force_close(1);
    for (int i = 0; i < 100; ++i) reader_->transport->progress(reader_->watcher);
    EXPECT_FALSE(is_done(1)) << "the device still writes to our blocks";
    EXPECT_FALSE(reader_->transport->arm()) << "nobody would wake us";
    reader_->device->end_after(0);
    ASSERT_TRUE(progress_until([&] { return is_done(1); }));
    EXPECT_FALSE(reader_->watcher.done.at(1)) << "what was read of a closed endpoint is told as an error";
    owner_.reset();
    reader_.reset();
  }
}

TEST_F(DevicePools, AForcedCloseEndsReadsThatHaveNoBytesYet) {
  devices_.in_reach = false;
  connect(&devices_, &devices_);
  owner_->device->end_after(1'000'000'000);
  const auto runs = scattered();
  for (ReadId read = 1; read <= 6; ++read) ASSERT_TRUE(reader_->transport->post_read(1, read, runs));
  for (int i = 0; i < 100; ++i) owner_->transport->progress(owner_->watcher);
  reader_->transport->force_close(1);
  ASSERT_TRUE(progress_until([&] { return reader_->watcher.done.size() == 6; }));
  for (const auto& [read, result] : reader_->watcher.done) EXPECT_FALSE(result);
  EXPECT_EQ(reader_->device->copies_queued(), 0u);
}

TEST_F(DevicePools, ABrokenCopyFailsItsReadAndTheEndpoint) {
  connect(&devices_, &devices_);
  reader_->device->fail_from_now_on();
  const auto runs = scattered();
  ASSERT_TRUE(reader_->transport->post_read(1, 1, runs));
  ASSERT_TRUE(progress_until([&] { return is_done(1) && reader_->watcher.broken.has_value(); }));
  EXPECT_FALSE(reader_->watcher.done.at(1));
  EXPECT_NE(reader_->watcher.broken->message.find("the device broke"), std::string::npos);
}

TEST_F(DevicePools, AnAddressHasOnePoolAndItsHandleIsBounded) {
  UcxAddress address;
  address.worker.resize(8);
  EXPECT_FALSE(decode_ucx_address(encode(address))) << "no pool";
  address.device.resize(device_handle_bytes_max);
  const auto decoded = decode_ucx_address(encode(address));
  ASSERT_TRUE(decoded);
  EXPECT_EQ(decoded->device.size(), device_handle_bytes_max);
  address.device.resize(device_handle_bytes_max + 1);
  EXPECT_FALSE(decode_ucx_address(encode(address))) << "too long";
  address.device.resize(8);
  address.rkey.resize(8);
  EXPECT_FALSE(decode_ucx_address(encode(address))) << "two pools";
  const auto whole = encode(address);
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
    EXPECT_FALSE(decode_ucx_address(base::BytesView(whole).first(bytes)));
  }
}

}  // namespace
}  // namespace penstock::worker::transfer::test
