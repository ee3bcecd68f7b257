#include "kernels/cuda/device_buffer.hpp"

#include <cuda_runtime.h>

#include <cstring>
#include <utility>

#include "common/base/check.hpp"

namespace penstock::kernels::cuda {
namespace {

Error failure(ErrorCode code, std::string_view what, cudaError_t error) {
  return make_error(code, std::string(what) + ": " + cudaGetErrorString(error));
}

Result<void> checked(cudaError_t error, std::string_view what) {
  if (error == cudaSuccess) return {};
  return failure(ErrorCode::internal, what, error);
}

}  // namespace

Result<void> check_launch(int code, std::string_view kernel) {
  return checked(static_cast<cudaError_t>(code), kernel);
}

Error bad_shape(std::string_view kernel, std::string_view why) {
  return make_error(ErrorCode::invalid_argument, std::string(kernel) + ": " + std::string(why));
}

Result<DeviceInfo> device_info() {
  int device = 0, driver = 0;
  cudaDeviceProp properties{};
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) error = cudaGetDeviceProperties(&properties, device);
  if (error == cudaSuccess) error = cudaDriverGetVersion(&driver);
  std::size_t free = 0, total = 0;
  if (error == cudaSuccess) error = cudaMemGetInfo(&free, &total);
  if (error != cudaSuccess) return failure(ErrorCode::unavailable, "no usable GPU", error);
  DeviceInfo info;
  info.number = device;
  info.name = properties.name;
  info.multiprocessors = static_cast<std::uint32_t>(properties.multiProcessorCount);
  info.compute_capability = static_cast<std::uint32_t>(properties.major * 10 + properties.minor);
  info.memory_bytes = properties.totalGlobalMem;
  info.memory_free_bytes = free;
  info.l2_bytes = static_cast<std::uint64_t>(properties.l2CacheSize);
  info.driver = static_cast<std::uint32_t>(driver);
  return info;
}

std::uint32_t device_count() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? static_cast<std::uint32_t>(count) : 0;
}

Result<void> use_device(int device) {
  const cudaError_t error = cudaSetDevice(device);
  if (error == cudaSuccess) return {};
  return failure(ErrorCode::unavailable, "GPU " + std::to_string(device), error);
}

OnDevice::OnDevice() {
  if (cudaGetDevice(&before_) != cudaSuccess) before_ = -1;
}

OnDevice::~OnDevice() {
  if (before_ >= 0) cudaSetDevice(before_);
}

Result<std::uint64_t> free_memory() {
  std::size_t free = 0, total = 0;
  PENSTOCK_TRY_VOID(checked(cudaMemGetInfo(&free, &total), "ask for free GPU memory"));
  return std::uint64_t{free};
}

Result<DeviceBuffer> DeviceBuffer::make(std::size_t bytes) {
  DeviceBuffer buffer;
  if (bytes == 0) return buffer;
  const cudaError_t error = cudaMalloc(&buffer.data_, bytes);
  if (error != cudaSuccess) {
    return failure(ErrorCode::resource_exhausted, std::to_string(bytes) + " bytes of GPU memory", error);
  }
  buffer.bytes_ = bytes;
  return buffer;
}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

DeviceBuffer::~DeviceBuffer() {
  cudaFree(data_);
}

Result<void> DeviceBuffer::upload(const void* host, std::size_t bytes, Stream stream, std::size_t offset) {
  PENSTOCK_CHECK(offset <= bytes_ && bytes <= bytes_ - offset, "bytes", bytes, "at", offset, "of", bytes_);
  void* const to = as<std::byte>() + offset;
  PENSTOCK_TRY_VOID(checked(cudaMemcpyAsync(to, host, bytes, cudaMemcpyHostToDevice, stream), "copy to the GPU"));
  return checked(cudaStreamSynchronize(stream), "copy to the GPU");
}

Result<void> DeviceBuffer::queue_upload(const void* host, std::size_t bytes, Stream stream, std::size_t offset) {
  PENSTOCK_CHECK(offset <= bytes_ && bytes <= bytes_ - offset, "bytes", bytes, "at", offset, "of", bytes_);
  void* const to = as<std::byte>() + offset;
  return checked(cudaMemcpyAsync(to, host, bytes, cudaMemcpyHostToDevice, stream), "copy to the GPU");
}

Result<void> DeviceBuffer::download(void* host, std::size_t bytes, Stream stream, std::size_t offset) const {
  PENSTOCK_CHECK(offset <= bytes_ && bytes <= bytes_ - offset, "bytes", bytes, "at", offset, "of", bytes_);
  const void* const from = as<std::byte>() + offset;
  PENSTOCK_TRY_VOID(checked(cudaMemcpyAsync(host, from, bytes, cudaMemcpyDeviceToHost, stream), "copy from the GPU"));
  return checked(cudaStreamSynchronize(stream), "copy from the GPU");
}

Result<void> DeviceBuffer::queue_copy(const DeviceBuffer& from, std::size_t bytes, Stream stream, std::size_t offset) {
  PENSTOCK_CHECK(bytes <= from.bytes_ && offset + bytes <= bytes_, "a copy beyond a buffer");
  return checked(
      cudaMemcpyAsync(static_cast<std::byte*>(data_) + offset, from.data_, bytes, cudaMemcpyDeviceToDevice, stream),
      "copy on the GPU");
}

Result<void> DeviceBuffer::fill(std::uint8_t value, Stream stream) {
  return checked(cudaMemsetAsync(data_, value, bytes_, stream), "fill GPU memory");
}

Result<PinnedBuffer> PinnedBuffer::make(std::size_t bytes) {
  PinnedBuffer buffer;
  if (bytes == 0) return buffer;
  const cudaError_t error = cudaHostAlloc(&buffer.data_, bytes, cudaHostAllocMapped);
  if (error != cudaSuccess) {
    return failure(ErrorCode::resource_exhausted, std::to_string(bytes) + " bytes of pinned memory", error);
  }
  std::memset(buffer.data_, 0, bytes);
  buffer.bytes_ = bytes;
  return buffer;
}

PinnedBuffer::PinnedBuffer(PinnedBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

PinnedBuffer& PinnedBuffer::operator=(PinnedBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

PinnedBuffer::~PinnedBuffer() {
  cudaFreeHost(data_);
}

Result<OwnedStream> OwnedStream::make() {
  OwnedStream stream;
  PENSTOCK_TRY_VOID(checked(cudaStreamCreateWithFlags(&stream.stream_, cudaStreamNonBlocking), "make a stream"));
  return stream;
}

OwnedStream::OwnedStream(OwnedStream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}

OwnedStream& OwnedStream::operator=(OwnedStream&& other) noexcept {
  std::swap(stream_, other.stream_);
  return *this;
}

OwnedStream::~OwnedStream() {
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

Result<void> OwnedStream::wait() const {
  return checked(cudaStreamSynchronize(stream_), "work on the GPU");
}

Graph::Graph(Graph&& other) noexcept : graph_(std::exchange(other.graph_, nullptr)) {}

Graph& Graph::operator=(Graph&& other) noexcept {
  std::swap(graph_, other.graph_);
  return *this;
}

Graph::~Graph() {
  if (graph_ != nullptr) cudaGraphExecDestroy(graph_);
}

Result<void> Graph::begin(Stream stream) {
  return checked(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "begin a graph");
}

Result<Graph> Graph::end(Stream stream) {
  cudaGraph_t recorded = nullptr;
  PENSTOCK_TRY_VOID(checked(cudaStreamEndCapture(stream, &recorded), "record a graph"));
  Graph graph;
  const cudaError_t error = cudaGraphInstantiate(&graph.graph_, recorded, 0);
  cudaGraphDestroy(recorded);
  PENSTOCK_TRY_VOID(checked(error, "make a graph"));
  return graph;
}

Result<void> Graph::launch(Stream stream) const {
  return checked(cudaGraphLaunch(graph_, stream), "start a graph");
}

Result<Stopwatch> Stopwatch::make() {
  Stopwatch watch;
  PENSTOCK_TRY_VOID(checked(cudaEventCreate(&watch.begin_), "make an event"));
  PENSTOCK_TRY_VOID(checked(cudaEventCreate(&watch.end_), "make an event"));
  return watch;
}

Stopwatch::Stopwatch(Stopwatch&& other) noexcept
    : begin_(std::exchange(other.begin_, nullptr)), end_(std::exchange(other.end_, nullptr)) {}

Stopwatch& Stopwatch::operator=(Stopwatch&& other) noexcept {
  std::swap(begin_, other.begin_);
  std::swap(end_, other.end_);
  return *this;
}

Stopwatch::~Stopwatch() {
  if (begin_ != nullptr) cudaEventDestroy(begin_);
  if (end_ != nullptr) cudaEventDestroy(end_);
}

Result<void> Stopwatch::start(Stream stream) {
  return checked(cudaEventRecord(begin_, stream), "record an event");
}

Result<void> Stopwatch::stop(Stream stream) {
  return checked(cudaEventRecord(end_, stream), "record an event");
}

Result<void> Stopwatch::wait() const {
  return checked(cudaEventSynchronize(end_), "wait for the GPU");
}

Result<double> Stopwatch::seconds() const {
  PENSTOCK_TRY_VOID(wait());
  float milliseconds = 0;
  PENSTOCK_TRY_VOID(checked(cudaEventElapsedTime(&milliseconds, begin_, end_), "read an event"));
  return milliseconds * 1e-3;
}

}  // namespace penstock::kernels::cuda
