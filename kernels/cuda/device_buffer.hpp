// Device memory, streams, events and graphs as owning values. Move-only; one thread at a time. Memory is allocated at
// start and freed with its owner; nothing here waits unless it says so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "common/base/result.hpp"
#include "kernels/cuda/stream.hpp"

struct CUevent_st;
struct CUgraphExec_st;

namespace penstock::kernels::cuda {

struct DeviceInfo {
  int number = 0;
  std::string name;
  std::uint32_t multiprocessors = 0;
  std::uint32_t compute_capability = 0;  // 90: 9.0
  std::uint64_t memory_bytes = 0;
  std::uint64_t memory_free_bytes = 0;  // when it was asked for
  std::uint64_t l2_bytes = 0;
  std::uint32_t driver = 0;  // CUDA version, 13000: 13.0
};
/// Of the current device. Errors: unavailable without a driver or a GPU, in one sentence.
Result<DeviceInfo> device_info();

/// GPUs of this machine; 0 without a driver.
std::uint32_t device_count();
/// Makes `device` the one that this thread allocates on and starts kernels on. Error: unavailable, its number.
Result<void> use_device(int device);
/// Gives the thread its device back when it goes.
class OnDevice {
 public:
  OnDevice();
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice();

 private:
  int before_ = -1;
};

/// Bytes of GPU memory that are free now.
Result<std::uint64_t> free_memory();

class DeviceBuffer {
 public:
  /// Error: resource_exhausted, with the bytes that were asked for.
  static Result<DeviceBuffer> make(std::size_t bytes);
  DeviceBuffer() = default;
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;
  ~DeviceBuffer();

  std::size_t bytes() const { return bytes_; }
  void* data() const { return data_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  /// Copies to or from the bytes at `offset` and waits for it. offset + bytes <= bytes().
  Result<void> upload(const void* host, std::size_t bytes, Stream stream, std::size_t offset = 0);
  Result<void> download(void* host, std::size_t bytes, Stream stream, std::size_t offset = 0) const;
  /// Only queues the copy: `host` must stay as it is until the stream has come there, and be pinned to gain anything.
  Result<void> queue_upload(const void* host, std::size_t bytes, Stream stream, std::size_t offset = 0);
  /// Copies the first bytes of another buffer of the device to those at `offset`; does not wait.
  Result<void> queue_copy(const DeviceBuffer& from, std::size_t bytes, Stream stream, std::size_t offset = 0);
  /// Sets every byte; does not wait.
  Result<void> fill(std::uint8_t value, Stream stream);

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Host memory that the device copies from and writes to by itself, at the same address. Zeros at first.
class PinnedBuffer {
 public:
  /// Error: resource_exhausted, with the bytes that were asked for.
  static Result<PinnedBuffer> make(std::size_t bytes);
  PinnedBuffer() = default;
  PinnedBuffer(PinnedBuffer&& other) noexcept;
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept;
  ~PinnedBuffer();

  std::size_t bytes() const { return bytes_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

class OwnedStream {
 public:
  static Result<OwnedStream> make();
  OwnedStream() = default;
  OwnedStream(OwnedStream&& other) noexcept;
  OwnedStream& operator=(OwnedStream&& other) noexcept;
  ~OwnedStream();
  Stream get() const { return stream_; }
  /// Waits for all that was queued. Error: what went wrong on the device; it is broken then.
  Result<void> wait() const;

 private:
  Stream stream_ = nullptr;
};

/// Work recorded once and replayed as one launch.
class Graph {
 public:
  /// `record` queues the work on `stream`, from this thread; its error is returned. Kernels must be loaded: each has
  /// run once before.
  template <class Record>
  static Result<Graph> capture(Stream stream, Record&& record) {
    PENSTOCK_TRY_VOID(begin(stream));
    Result<void> recorded = record();
    Result<Graph> graph = end(stream);
    if (!recorded) return std::move(recorded).error();
    return graph;
  }
  Graph() = default;
  Graph(Graph&& other) noexcept;
  Graph& operator=(Graph&& other) noexcept;
  ~Graph();
  Result<void> launch(Stream stream) const;

 private:
  static Result<void> begin(Stream stream);
  static Result<Graph> end(Stream stream);
  CUgraphExec_st* graph_ = nullptr;
};

/// Device time between two points of a stream.
class Stopwatch {
 public:
  static Result<Stopwatch> make();
  Stopwatch() = default;
  Stopwatch(Stopwatch&& other) noexcept;
  Stopwatch& operator=(Stopwatch&& other) noexcept;
  ~Stopwatch();
  Result<void> start(Stream stream);
  Result<void> stop(Stream stream);
  /// Waits for the second point. Error: what went wrong on the device before it.
  Result<void> wait() const;
  /// After waiting.
  Result<double> seconds() const;

 private:
  CUevent_st* begin_ = nullptr;
  CUevent_st* end_ = nullptr;
};

}  // namespace penstock::kernels::cuda
