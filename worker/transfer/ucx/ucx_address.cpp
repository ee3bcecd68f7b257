#include "worker/transfer/ucx/ucx_address.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>

#include "worker/transfer/device_pool.hpp"

namespace penstock::worker::transfer {
namespace {

constexpr std::uint32_t address_magic = 0x34585550;
constexpr std::uint32_t part_bytes_max = 8192;

void put(base::ByteWriter& writer, base::BytesView part) {
  writer.write(static_cast<std::uint32_t>(part.size()));
  writer.write_bytes(part);
}
base::BytesView get(base::ByteReader& reader) {
  const auto size = reader.read<std::uint32_t>();
  return reader.take(size <= part_bytes_max ? size : ~0ull);
}

}  // namespace

base::Bytes encode(const UcxAddress& address) {
  base::Bytes out;
  base::ByteWriter writer(out);
  writer.write(address_magic);
  writer.write(address.transport);
  writer.write(address.pool_base);
  writer.write(address.pool_bytes);
  writer.write(address.process.process);
  writer.write(address.process.proof_address);
  writer.write(address.process.proof);
  writer.write(address.share.token_high);
  writer.write(address.share.token_low);
  put(writer, base::as_bytes(address.share.name));
  put(writer, base::as_bytes(address.host));
  put(writer, address.worker);
  put(writer, address.rkey);
  put(writer, address.device);
  return out;
}

Result<UcxAddress> decode_ucx_address(base::BytesView bytes) {
  base::ByteReader reader(bytes);
  const auto magic = reader.read<std::uint32_t>();
  UcxAddress address;
  address.transport = reader.read<std::uint64_t>();
  address.pool_base = reader.read<std::uint64_t>();
  address.pool_bytes = reader.read<std::uint64_t>();
  address.process.process = reader.read<std::uint64_t>();
  address.process.proof_address = reader.read<std::uint64_t>();
  address.process.proof = reader.read<std::uint64_t>();
  address.share.token_high = reader.read<std::uint64_t>();
  address.share.token_low = reader.read<std::uint64_t>();
  address.share.name = std::string(base::as_text(get(reader)));
  address.host = std::string(base::as_text(get(reader)));
  const base::BytesView worker = get(reader), rkey = get(reader), device = get(reader);
  const bool has_one_pool = rkey.empty() != device.empty() && device.size() <= device_handle_bytes_max;
  if (!reader.ok() || reader.left() != 0 || magic != address_magic || worker.empty() || !has_one_pool) {
    return make_error(ErrorCode::data_loss, "the peer's UCX address is malformed");
  }
  address.worker.assign(worker.begin(), worker.end());
  address.rkey.assign(rkey.begin(), rkey.end());
  address.device.assign(device.begin(), device.end());
  return address;
}

std::string host_identity() {
  std::string identity;
  std::array<char, 128> text{};
  if (int file = ::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC); file >= 0) {
    const ssize_t got = ::read(file, text.data(), text.size());
    ::close(file);
    if (got > 0) identity.append(text.data(), static_cast<std::size_t>(got));
  }
  const ssize_t got = ::readlink("/proc/self/ns/ipc", text.data(), text.size());
  if (got > 0) identity.append(text.data(), static_cast<std::size_t>(got));
  return identity;
}

}  // namespace penstock::worker::transfer
