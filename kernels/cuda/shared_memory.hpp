// What KV transfer needs of the CUDA runtime: memory that processes of one machine share, and copies whose end can be
// asked for. Owner: one thread at a time, with a device that it has chosen. Nothing here waits unless it says so.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "common/base/result.hpp"
#include "kernels/cuda/stream.hpp"

struct CUevent_st;

namespace penstock::kernels::cuda {

/// What another process opens an allocation with. Opaque; whoever has it can read and write the memory.
using MemoryHandle = std::array<std::byte, 64>;

/// Of an allocation of this process, by its first byte. Error: unsupported, why the system does not share it.
Result<MemoryHandle> share_memory(void* base);

/// An allocation of another process, seen by the current device; also of another GPU that it reaches. It stays valid
/// when its owner has ended. The destructor may wait for the device.
class SharedMemory {
 public:
  /// Error: unavailable, the driver's reason; also for this process's own memory, which it does not open.
  static Result<SharedMemory> open(const MemoryHandle& handle);
  SharedMemory() = default;
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();
  std::byte* data() const { return data_; }
  /// Of the allocation, as this machine's driver knows it and not as the peer says.
  std::size_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Between memory of GPUs that reach each other, or of a GPU and pinned memory of the processor.
struct MemoryCopy {
  void* to = nullptr;
  const void* from = nullptr;
  std::size_t bytes = 0;  // at least 1
};
/// Queues them; none overlaps another. After an error some may be queued.
Result<void> queue_copies(std::span<const MemoryCopy> copies, Stream stream);

/// A point in a stream that can be asked for.
class Event {
 public:
  static Result<Event> make();
  Event() = default;
  Event(Event&& other) noexcept;
  Event& operator=(Event&& other) noexcept;
  ~Event();
  Result<void> record(Stream stream);
  /// Whether all before record() has ended. Error: what went wrong on the device; it is broken then.
  Result<bool> is_done() const;

 private:
  CUevent_st* event_ = nullptr;
};

}  // namespace penstock::kernels::cuda
