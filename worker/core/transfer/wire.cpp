#include "worker/core/transfer/wire.hpp"

#include <array>

#include "common/base/check.hpp"

namespace penstock::worker::transfer {
namespace {

using base::ByteReader;
using base::Bytes;
using base::BytesView;
using base::ByteWriter;

// ---- Small parts. A reader that found nonsense takes more than is left, which makes it fail for good. ----

void fail(ByteReader& reader) {
  reader.take(~0ull);
}

void put_text(ByteWriter& writer, std::string_view text, std::size_t bytes_max) {
  text = text.substr(0, bytes_max);
  writer.write(static_cast<std::uint32_t>(text.size()));
  writer.write_bytes(base::as_bytes(text));
}
BytesView get_bytes(ByteReader& reader, std::size_t bytes_max) {
  const auto size = reader.read<std::uint32_t>();
  if (size > bytes_max) fail(reader);
  return reader.take(size);
}
std::string get_text(ByteReader& reader) {
  return std::string(base::as_text(get_bytes(reader, text_bytes_max)));
}

bool get_bool(ByteReader& reader) {
  const auto value = reader.read<std::uint8_t>();
  if (value > 1) fail(reader);
  return value == 1;
}
template <class Enum>
Enum get_enum(ByteReader& reader, Enum last) {
  const auto value = reader.read<std::uint8_t>();
  if (value > static_cast<std::uint8_t>(last)) fail(reader);
  return static_cast<Enum>(value);
}
/// A count of items of at least `item_bytes` each; zero if that many can't be left.
std::uint32_t get_count(ByteReader& reader, std::uint32_t count_max, std::size_t item_bytes) {
  const auto count = reader.read<std::uint32_t>();
  if (count > count_max || std::uint64_t{count} * item_bytes > reader.left()) fail(reader);
  return reader.ok() ? count : 0;
}

void put_key(ByteWriter& writer, const TransferKey& key) {
  writer.write(key.transfer);
  writer.write(key.attempt);
}
TransferKey get_key(ByteReader& reader) {
  TransferKey key;
  key.transfer = reader.read<TransferId>();
  key.attempt = reader.read<std::uint32_t>();
  return key;
}

void put_blocks(ByteWriter& writer, const std::vector<BlockIndex>& blocks) {
  std::vector<std::pair<BlockIndex, std::uint32_t>> runs;
  for (BlockIndex block : blocks) {
    if (!runs.empty() && runs.back().first + runs.back().second == block) {
      ++runs.back().second;
    } else {
      runs.emplace_back(block, 1);
    }
  }
  writer.write(static_cast<std::uint32_t>(runs.size()));
  for (const auto& [begin, count] : runs) {
    writer.write(begin);
    writer.write(count);
  }
}
std::vector<BlockIndex> get_blocks(ByteReader& reader) {
  std::vector<BlockIndex> blocks;
  for (std::uint32_t runs = get_count(reader, blocks_per_offer_max, 8); runs > 0; --runs) {
    const auto begin = reader.read<BlockIndex>();
    const auto count = reader.read<std::uint32_t>();
    if (count == 0 || count > blocks_per_offer_max - blocks.size() || begin + std::uint64_t{count} > 0xFFFFFFFFull) {
      fail(reader);
      return {};
    }
    for (std::uint32_t i = 0; i < count; ++i) blocks.push_back(begin + i);
  }
  return blocks;
}

// ---- Bodies ----

void put(ByteWriter& w, const HelloMessage& m) {
  put_text(w, m.fingerprint, text_bytes_max);
  put_text(w, m.ticket, text_bytes_max);
  put_text(w, m.transport, text_bytes_max);
  w.write(m.pool_blocks);
  w.write(m.block_bytes);
  put_text(w, base::as_text(m.address), address_bytes_max);
}
void get(ByteReader& r, HelloMessage& m) {
  m.fingerprint = get_text(r);
  m.ticket = get_text(r);
  m.transport = get_text(r);
  m.pool_blocks = r.read<std::uint32_t>();
  m.block_bytes = r.read<std::uint64_t>();
  const BytesView address = get_bytes(r, address_bytes_max);
  m.address.assign(address.begin(), address.end());
}
void put(ByteWriter& w, const HelloAckMessage& m) {
  w.write(m.pool_blocks);
  w.write(m.block_bytes);
  w.write(m.lease_ms);
  put_text(w, base::as_text(m.address), address_bytes_max);
}
void get(ByteReader& r, HelloAckMessage& m) {
  m.pool_blocks = r.read<std::uint32_t>();
  m.block_bytes = r.read<std::uint64_t>();
  m.lease_ms = r.read<std::uint32_t>();
  const BytesView address = get_bytes(r, address_bytes_max);
  m.address.assign(address.begin(), address.end());
}
void put(ByteWriter& w, const RejectMessage& m) {
  w.write(m.code);
  put_text(w, m.detail, text_bytes_max);
}
void get(ByteReader& r, RejectMessage& m) {
  m.code = get_enum(r, RejectCode::malformed);
  m.detail = get_text(r);
}
void put(ByteWriter& w, const WantMessage& m) {
  put_text(w, m.ticket, text_bytes_max);
  w.write(m.next_chunk);
}
void get(ByteReader& r, WantMessage& m) {
  m.ticket = get_text(r);
  m.next_chunk = r.read<std::uint32_t>();
}
void put(ByteWriter& w, const OfferMessage& m) {
  w.write(m.chunk);
  w.write(m.token_begin);
  w.write(m.token_end);
  w.write(m.lease_ms);
  w.write(m.part);
  w.write(m.parts);
  w.write(static_cast<std::uint8_t>(m.last));
  put_text(w, m.ticket, text_bytes_max);
  put_blocks(w, m.blocks);
  w.write(static_cast<std::uint32_t>(m.hashes.size()));
  for (const auto& hash : m.hashes) w.write(hash);
  w.write(static_cast<std::uint32_t>(m.first_tokens.size()));
  for (const auto& first : m.first_tokens) {
    w.write(first.choice);
    w.write(first.token);
    w.write(static_cast<std::uint8_t>(first.finished));
  }
}
void get(ByteReader& r, OfferMessage& m) {
  m.chunk = r.read<std::uint32_t>();
  m.token_begin = r.read<std::uint32_t>();
  m.token_end = r.read<std::uint32_t>();
  m.lease_ms = r.read<std::uint32_t>();
  m.part = r.read<std::uint16_t>();
  m.parts = r.read<std::uint16_t>();
  m.last = get_bool(r);
  if (m.parts == 0 || m.part >= m.parts || m.token_end < m.token_begin) fail(r);
  m.ticket = get_text(r);
  m.blocks = get_blocks(r);
  m.hashes.resize(get_count(r, blocks_per_offer_max, sizeof(BlockHash)));
  for (auto& hash : m.hashes) hash = r.read<BlockHash>();
  m.first_tokens.resize(get_count(r, first_tokens_max, 9));
  for (auto& first : m.first_tokens) {
    first.choice = r.read<std::uint32_t>();
    first.token = r.read<TokenId>();
    first.finished = get_bool(r);
  }
}
void put(ByteWriter& w, const DoneMessage& m) {
  w.write(m.chunk);
  w.write(m.bytes);
}
void get(ByteReader& r, DoneMessage& m) {
  m.chunk = r.read<std::uint32_t>();
  m.bytes = r.read<std::uint64_t>();
}
void put(ByteWriter& w, const DoneAckMessage& m) {
  w.write(m.chunk);
  w.write(static_cast<std::uint8_t>(m.valid));
}
void get(ByteReader& r, DoneAckMessage& m) {
  m.chunk = r.read<std::uint32_t>();
  m.valid = get_bool(r);
}
void put(ByteWriter& w, const RenewMessage& m) {
  w.write(static_cast<std::uint32_t>(m.transfers.size()));
  for (const auto& renewal : m.transfers) {
    put_key(w, renewal.key);
    w.write(renewal.next_chunk);
  }
}
void get(ByteReader& r, RenewMessage& m) {
  m.transfers.resize(get_count(r, renewals_max, 24));
  for (auto& renewal : m.transfers) {
    renewal.key = get_key(r);
    renewal.next_chunk = r.read<std::uint32_t>();
  }
}
void put(ByteWriter& w, const RenewedMessage& m) {
  w.write(static_cast<std::uint32_t>(m.unknown.size()));
  for (const auto& key : m.unknown) put_key(w, key);
}
void get(ByteReader& r, RenewedMessage& m) {
  m.unknown.resize(get_count(r, renewals_max, 20));
  for (auto& key : m.unknown) key = get_key(r);
}
void put(ByteWriter& w, const ReleaseMessage& m) {
  put_text(w, m.reason, text_bytes_max);
}
void get(ByteReader& r, ReleaseMessage& m) {
  m.reason = get_text(r);
}
void put(ByteWriter& w, const AbortMessage& m) {
  w.write(m.end);
  put_text(w, m.reason, text_bytes_max);
}
void get(ByteReader& r, AbortMessage& m) {
  m.end = get_enum(r, TransferEnd::released);
  m.reason = get_text(r);
}
void put(ByteWriter&, const GoneMessage&) {}
void get(ByteReader&, GoneMessage&) {}
void put(ByteWriter&, const UnknownInstanceMessage&) {}
void get(ByteReader&, UnknownInstanceMessage&) {}
void put(ByteWriter& w, const PingMessage& m) {
  w.write(m.from);
  w.write(m.stamp);
}
void get(ByteReader& r, PingMessage& m) {
  m.from = get_enum(r, LinkRole::sender);
  m.stamp = r.read<std::uint64_t>();
}
void put(ByteWriter& w, const PongMessage& m) {
  w.write(m.from);
  w.write(m.stamp);
  w.write(m.pinned_bytes);
}
void get(ByteReader& r, PongMessage& m) {
  m.from = get_enum(r, LinkRole::sender);
  m.stamp = r.read<std::uint64_t>();
  m.pinned_bytes = r.read<std::uint64_t>();
}
void put(ByteWriter& w, const GoodbyeMessage& m) {
  w.write(m.from);
  w.write(m.parting);
}
void get(ByteReader& r, GoodbyeMessage& m) {
  m.from = get_enum(r, LinkRole::sender);
  m.parting = get_enum(r, Parting::leaving);
}

/// Decodes the body of the type at `index` of the variant.
template <std::size_t Index = 0>
bool get_message(std::size_t index, ByteReader& reader, Message& out) {
  if constexpr (Index < std::variant_size_v<Message>) {
    if (index != Index) return get_message<Index + 1>(index, reader, out);
    get(reader, out.emplace<Index>());
    return reader.ok();
  } else {
    return false;
  }
}

constexpr std::size_t crc_offset = 12;

std::uint32_t crc_of(BytesView message) {
  constexpr std::array<std::byte, 4> zeros{};
  std::uint32_t crc = crc32c(0, message.first(crc_offset));
  crc = crc32c(crc, zeros);
  return crc32c(crc, message.subspan(crc_offset + 4));
}

Error malformed(const char* what) {
  return make_error(ErrorCode::data_loss, std::string("KV transfer message: ") + what);
}

}  // namespace

Bytes encode(const Envelope& envelope) {
  Bytes out;
  out.reserve(256);
  ByteWriter writer(out);
  writer.write(wire_magic);
  writer.write(wire_version);
  writer.write(static_cast<std::uint16_t>(envelope.message.index() + 1));
  writer.write(std::uint64_t{0});  // body length and CRC, filled in below
  writer.write(envelope.source);
  writer.write(envelope.destination);
  put_key(writer, envelope.key);
  writer.write(envelope.sequence);
  PENSTOCK_CHECK(out.size() == wire_header_bytes);
  std::visit([&](const auto& message) { put(writer, message); }, envelope.message);
  PENSTOCK_CHECK(out.size() - wire_header_bytes <= wire_body_bytes_max, "body", out.size());
  const auto body_bytes = static_cast<std::uint32_t>(out.size() - wire_header_bytes);
  std::memcpy(out.data() + 8, &body_bytes, 4);
  const std::uint32_t crc = crc_of(out);
  std::memcpy(out.data() + crc_offset, &crc, 4);
  return out;
}

Result<Envelope> decode(BytesView bytes) {
  if (bytes.size() < wire_header_bytes) return malformed("shorter than its header");
  ByteReader reader(bytes);
  if (reader.read<std::uint32_t>() != wire_magic) return malformed("wrong magic number");
  if (reader.read<std::uint16_t>() != wire_version) return malformed("wrong version");
  const auto type = reader.read<std::uint16_t>();
  const auto body_bytes = reader.read<std::uint32_t>();
  const auto crc = reader.read<std::uint32_t>();
  if (body_bytes > wire_body_bytes_max || body_bytes != bytes.size() - wire_header_bytes)
    return malformed("wrong length");
  if (crc != crc_of(bytes)) return malformed("wrong checksum");
  Envelope envelope;
  envelope.source = reader.read<InstanceId>();
  envelope.destination = reader.read<InstanceId>();
  envelope.key = get_key(reader);
  envelope.sequence = reader.read<std::uint32_t>();
  if (type == 0 || type > std::variant_size_v<Message>) return malformed("unknown type");
  if (!get_message(type - 1u, reader, envelope.message)) return malformed("wrong body");
  if (reader.left() != 0) return malformed("bytes after the body");
  return envelope;
}

}  // namespace penstock::worker::transfer
