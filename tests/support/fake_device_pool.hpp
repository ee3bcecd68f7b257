// A KV pool on a device that isn't there: private memory, copies that end only after they have been asked for a few
// times, and peers of this process that are in reach or not. One thread.
#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "worker/transfer/device_pool.hpp"

namespace penstock::worker::transfer::test {

/// Which pools reach each other.
struct FakeDevices {
  bool in_reach = true;
  std::map<std::uint64_t, std::vector<std::byte>*> pools;
  std::uint64_t next = 1;
};

class FakeDevicePool final : public DevicePool {
 public:
  struct Peer final : DevicePeer {
    std::vector<std::byte>* memory = nullptr;
  };

  FakeDevicePool(FakeDevices& devices, std::uint64_t bytes) : devices_(devices), id_(devices.next++), memory_(bytes) {
    devices_.pools[id_] = &memory_;
    base::ByteWriter(handle_).write(id_);
  }
  ~FakeDevicePool() override { devices_.pools.erase(id_); }

  std::vector<std::byte>& memory() { return memory_; }
  std::uint64_t copies_queued() const { return next_ - 1; }
  void fail_from_now_on() { fails_ = true; }
  /// Copies end no more until it is called again with another number.
  void end_after(int asked) { asked_before_end_ = asked; }

  std::uint64_t bytes() const override { return memory_.size(); }
  const base::Bytes& handle() const override { return handle_; }
  Result<std::unique_ptr<DevicePeer>> open(base::BytesView handle, std::uint64_t bytes) override {
    base::ByteReader reader(handle);
    const auto found = devices_.pools.find(reader.read<std::uint64_t>());
    if (!devices_.in_reach || found == devices_.pools.end() || found->second->size() < bytes) {
      return make_error(ErrorCode::unavailable, "out of reach");
    }
    auto peer = std::make_unique<Peer>();
    peer->memory = found->second;
    return std::unique_ptr<DevicePeer>(std::move(peer));
  }
  Result<CopyId> copy_from_peer(DevicePeer& peer, std::span<const ReadRun> runs) override {
    const std::byte* const from = static_cast<Peer&>(peer).memory->data();
    std::vector<Move> moves;
    for (const ReadRun& run : runs) {
      moves.push_back({memory_.data() + run.local_offset, from + run.remote_offset, run.bytes});
    }
    return queue(std::move(moves));
  }
  Result<CopyId> copy_in(std::span<const HostRun> runs) override {
    std::vector<Move> moves;
    for (const HostRun& run : runs) moves.push_back({memory_.data() + run.offset, run.host, run.bytes});
    return queue(std::move(moves));
  }
  Result<CopyId> copy_out(std::span<const HostRun> runs) override {
    std::vector<Move> moves;
    for (const HostRun& run : runs) moves.push_back({run.host, memory_.data() + run.offset, run.bytes});
    return queue(std::move(moves));
  }
  Result<bool> is_done(CopyId copy) override {
    UnderWay& under_way = under_way_.at(copy);
    if (++under_way.asked <= asked_before_end_) return false;
    for (const Move& move : under_way.moves) std::memcpy(move.to, move.from, move.bytes);
    under_way_.erase(copy);
    if (fails_) return make_error(ErrorCode::internal, "the device broke");
    return true;
  }
  void wait() override {
    for (auto& [id, under_way] : under_way_) under_way.asked = asked_before_end_;
  }
  Result<std::shared_ptr<std::byte>> host_memory(std::uint64_t bytes) override {
    const std::shared_ptr<std::byte[]> memory(new std::byte[bytes]);  // pages come as they are used
    return std::shared_ptr<std::byte>(memory, memory.get());
  }
  std::string describe() const override { return "no device"; }

 private:
  struct Move {
    std::byte* to = nullptr;
    const std::byte* from = nullptr;
    std::uint64_t bytes = 0;
  };
  struct UnderWay {
    std::vector<Move> moves;  // carried out at the end, so that what was released too early shows
    int asked = 0;
  };
  CopyId queue(std::vector<Move> moves) {
    under_way_[next_] = {std::move(moves), 0};
    return next_++;
  }

  FakeDevices& devices_;
  const std::uint64_t id_;
  std::vector<std::byte> memory_;
  base::Bytes handle_;
  std::map<CopyId, UnderWay> under_way_;
  CopyId next_ = 1;
  int asked_before_end_ = 2;
  bool fails_ = false;
};

}  // namespace penstock::worker::transfer::test
