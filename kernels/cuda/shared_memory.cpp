#include "kernels/cuda/shared_memory.hpp"

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace penstock::kernels::cuda {
namespace {

static_assert(sizeof(cudaIpcMemHandle_t) == sizeof(MemoryHandle));

/// An error that is no fault of the device's: forgotten, or the next launch would report it.
Error refused(ErrorCode code, const char* what, cudaError_t error) {
  cudaGetLastError();
  return make_error(code, std::string(what) + ": " + cudaGetErrorString(error));
}

/// Bytes from `data` to the end of its allocation. The runtime does not tell, so the driver is asked.
Result<std::size_t> bytes_from(const void* data) {
  using Ask = CUresult (*)(CUdeviceptr*, std::size_t*, CUdeviceptr);
  void* symbol = nullptr;
  auto found = cudaDriverEntryPointSymbolNotFound;
  constexpr unsigned version = 12000;
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion("cuMemGetAddressRange", &symbol, version, cudaEnableDefault, &found);
  if (error != cudaSuccess) return refused(ErrorCode::unavailable, "the driver can't tell the size of memory", error);
  CUdeviceptr begin = 0;
  std::size_t bytes = 0;
  const auto address = reinterpret_cast<CUdeviceptr>(data);
  if (found != cudaDriverEntryPointSuccess || reinterpret_cast<Ask>(symbol)(&begin, &bytes, address) != CUDA_SUCCESS) {
    return make_error(ErrorCode::unavailable, "the driver does not tell the size of the peer's GPU memory");
  }
  return bytes - (address - begin);
}

}  // namespace

Result<MemoryHandle> share_memory(void* base) {
  cudaIpcMemHandle_t opaque;
  const cudaError_t error = cudaIpcGetMemHandle(&opaque, base);
  if (error != cudaSuccess) return refused(ErrorCode::unsupported, "GPU memory can't be shared", error);
  MemoryHandle handle;
  std::memcpy(handle.data(), &opaque, sizeof opaque);
  return handle;
}

Result<SharedMemory> SharedMemory::open(const MemoryHandle& handle) {
  cudaIpcMemHandle_t opaque;
  std::memcpy(&opaque, handle.data(), sizeof opaque);
  void* data = nullptr;
  const cudaError_t error = cudaIpcOpenMemHandle(&data, opaque, cudaIpcMemLazyEnablePeerAccess);
  if (error != cudaSuccess) return refused(ErrorCode::unavailable, "the peer's GPU memory can't be opened", error);
  SharedMemory memory;
  memory.data_ = static_cast<std::byte*>(data);
  PENSTOCK_TRY(memory.bytes_, bytes_from(data));
  return memory;
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) cudaIpcCloseMemHandle(data_);
}

Result<void> queue_copies(std::span<const MemoryCopy> copies, Stream stream) {
  if (copies.empty()) return {};
  std::vector<void*> to;
  std::vector<const void*> from;
  std::vector<std::size_t> bytes;
  for (const MemoryCopy& copy : copies) {
    to.push_back(copy.to);
    from.push_back(copy.from);
    bytes.push_back(copy.bytes);
  }
  cudaMemcpyAttributes attributes{};
  attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  std::size_t first = 0;  // the attributes hold from this copy on
  return check_launch(
      cudaMemcpyBatchAsync(to.data(), from.data(), bytes.data(), copies.size(), &attributes, &first, 1, stream),
      "copy KV");
}

Result<Event> Event::make() {
  Event event;
  PENSTOCK_TRY_VOID(check_launch(cudaEventCreateWithFlags(&event.event_, cudaEventDisableTiming), "make an event"));
  return event;
}

Event::Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}

Event& Event::operator=(Event&& other) noexcept {
  std::swap(event_, other.event_);
  return *this;
}

Event::~Event() {
  if (event_ != nullptr) cudaEventDestroy(event_);
}

Result<void> Event::record(Stream stream) {
  return check_launch(cudaEventRecord(event_, stream), "record an event");
}

Result<bool> Event::is_done() const {
  const cudaError_t error = cudaEventQuery(event_);
  if (error == cudaErrorNotReady) {
    cudaGetLastError();  // it is no error
    return false;
  }
  PENSTOCK_TRY_VOID(check_launch(error, "copy KV"));
  return true;
}

}  // namespace penstock::kernels::cuda
