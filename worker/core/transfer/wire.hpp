// The KV transfer protocol on the wire: a 72-byte header, then a body of at most 64 KiB, all little-endian, with a
// CRC-32C over both. Input is untrusted: every count is checked against the bytes that are left before anything is
// allocated. States and rules: docs/contracts/kv-transfer.md. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "common/base/bytes.hpp"
#include "common/base/id.hpp"
#include "common/base/result.hpp"
#include "common/base/types.hpp"
#include "worker/engine/kv_transfer.hpp"

namespace penstock::worker::transfer {

constexpr std::uint32_t wire_magic = 0x50564B50;  // "PKVP"
constexpr std::uint16_t wire_version = 2;
constexpr std::size_t wire_header_bytes = 72;
constexpr std::size_t wire_body_bytes_max = 64u << 10;
constexpr std::size_t address_bytes_max = 16u << 10;
constexpr std::size_t text_bytes_max = 1u << 10;
constexpr std::uint32_t blocks_per_offer_max = 2048;  // 8 + 16 bytes each at worst: below the body limit
constexpr std::uint32_t renewals_max = 2048;          // 24 bytes each
constexpr std::uint32_t first_tokens_max = 1024;

/// Who says it: the two directions between a pair of workers are separate links.
enum class LinkRole : std::uint8_t { receiver, sender };  // D dialled (receiver) or P accepted (sender)

struct HelloMessage {  // on the control channel, D to P
  std::string fingerprint;
  std::string ticket;
  std::string transport;  // "ucx", "loopback"
  std::uint32_t pool_blocks = 0;
  std::uint64_t block_bytes = 0;
  base::Bytes address;  // KvTransport::local_address()
  friend bool operator==(const HelloMessage&, const HelloMessage&) = default;
};
struct HelloAckMessage {  // on the control channel, P to D
  std::uint32_t pool_blocks = 0;
  std::uint64_t block_bytes = 0;
  std::uint32_t lease_ms = 0;
  base::Bytes address;
  friend bool operator==(const HelloAckMessage&, const HelloAckMessage&) = default;
};
enum class RejectCode : std::uint8_t { unknown_instance, layout, transport, ticket, draining, full, malformed };
struct RejectMessage {  // on the control channel, P to D
  RejectCode code = RejectCode::malformed;
  std::string detail;
  friend bool operator==(const RejectMessage&, const RejectMessage&) = default;
};
struct WantMessage {  // D to P: EXPECT has arrived, send offers from `next_chunk` on
  std::string ticket;
  std::uint32_t next_chunk = 0;
  friend bool operator==(const WantMessage&, const WantMessage&) = default;
};
struct OfferMessage {  // P to D: a part of a chunk. Parts of a chunk share all but `part`, `blocks`, `hashes`.
  std::uint32_t chunk = 0;
  std::uint32_t token_begin = 0;
  std::uint32_t token_end = 0;
  std::uint32_t lease_ms = 0;
  std::uint16_t part = 0;
  std::uint16_t parts = 1;
  bool last = false;
  std::string ticket;
  std::vector<BlockIndex> blocks;  // as runs on the wire
  std::vector<BlockHash> hashes;
  std::vector<FirstToken> first_tokens;  // with part 0 of the last chunk
  friend bool operator==(const OfferMessage&, const OfferMessage&) = default;
};
struct DoneMessage {  // D to P: reads of that chunk have completed
  std::uint32_t chunk = 0;
  std::uint64_t bytes = 0;
  friend bool operator==(const DoneMessage&, const DoneMessage&) = default;
};
struct DoneAckMessage {  // P to D
  std::uint32_t chunk = 0;
  bool valid = false;
  friend bool operator==(const DoneAckMessage&, const DoneAckMessage&) = default;
};
struct Renewal {
  TransferKey key;
  std::uint32_t next_chunk = 0;  // offers below it have arrived
  friend bool operator==(const Renewal&, const Renewal&) = default;
};
struct RenewMessage {  // D to P, peer-level
  std::vector<Renewal> transfers;
  friend bool operator==(const RenewMessage&, const RenewMessage&) = default;
};
struct RenewedMessage {  // P to D, peer-level: those that P does not hold
  std::vector<TransferKey> unknown;
  friend bool operator==(const RenewedMessage&, const RenewedMessage&) = default;
};
struct ReleaseMessage {  // D to P: will not read
  std::string reason;
  friend bool operator==(const ReleaseMessage&, const ReleaseMessage&) = default;
};
struct AbortMessage {  // P to D: nothing more comes, what is not validated will be invalid
  TransferEnd end = TransferEnd::aborted;
  std::string reason;
  friend bool operator==(const AbortMessage&, const AbortMessage&) = default;
};
struct GoneMessage {  // answer to a message of an attempt that has ended or was never here
  friend bool operator==(const GoneMessage&, const GoneMessage&) = default;
};
struct UnknownInstanceMessage {  // answer to a message for another instance
  friend bool operator==(const UnknownInstanceMessage&, const UnknownInstanceMessage&) = default;
};
struct PingMessage {
  LinkRole from = LinkRole::receiver;
  std::uint64_t stamp = 0;  // of the pinger's clock; comes back in the PONG
  friend bool operator==(const PingMessage&, const PingMessage&) = default;
};
struct PongMessage {
  LinkRole from = LinkRole::receiver;
  std::uint64_t stamp = 0;
  std::uint64_t pinned_bytes = 0;
  friend bool operator==(const PongMessage&, const PongMessage&) = default;
};
enum class Parting : std::uint8_t {
  draining,  // nothing new; what runs goes on
  leaving,   // the process ends: whatever the peer still waits for won't come
};
struct GoodbyeMessage {
  LinkRole from = LinkRole::receiver;
  Parting parting = Parting::draining;
  friend bool operator==(const GoodbyeMessage&, const GoodbyeMessage&) = default;
};

// The wire type is the index + 1: append only.
using Message = std::variant<HelloMessage, HelloAckMessage, RejectMessage, WantMessage, OfferMessage, DoneMessage,
                             DoneAckMessage, RenewMessage, RenewedMessage, ReleaseMessage, AbortMessage, GoneMessage,
                             UnknownInstanceMessage, PingMessage, PongMessage, GoodbyeMessage>;

struct Envelope {
  InstanceId source;
  InstanceId destination;
  TransferKey key;  // zero for peer-level messages
  std::uint32_t sequence = 0;
  Message message;
  friend bool operator==(const Envelope&, const Envelope&) = default;
};

base::Bytes encode(const Envelope& envelope);
/// data_loss for anything that is not exactly one well-formed message.
Result<Envelope> decode(base::BytesView bytes);

/// CRC-32C (Castagnoli), continuing from `crc`.
std::uint32_t crc32c(std::uint32_t crc, base::BytesView bytes);

}  // namespace penstock::worker::transfer
