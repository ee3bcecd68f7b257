// The port between the engine (which owns blocks) and the KV transfer service (which owns peers, leases and reads).
// Both sides speak plain values: the engine calls KvTransferPort and never waits; the service posts TransferEvents into
// the engine's inbox. The engine pins what it offers and reserves what is to be filled; the service says when each pin
// ends. Ownership states and proof of soundness: docs/contracts/kv-transfer.md.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "common/base/error.hpp"
#include "common/base/id.hpp"
#include "common/base/types.hpp"
#include "common/protocol/messages.hpp"

namespace penstock::worker {

/// One dispatch of one transfer. Older attempts of the same transfer are dead.
struct TransferKey {
  TransferId transfer;
  std::uint32_t attempt = 0;
  friend bool operator==(const TransferKey&, const TransferKey&) = default;
};

/// The first token of a choice as P drew it; with the seed and position that is the whole sampler state.
struct FirstToken {
  std::uint32_t choice = 0;
  TokenId token = 0;
  bool finished = false;  // P ended this choice (stop id or tokens_max); D does not run it
  friend bool operator==(const FirstToken&, const FirstToken&) = default;
};

/// P: KV of prompt tokens [token_begin, token_end) is in `blocks`, pinned from now until ChunkReleased. token_begin is a
/// multiple of the block size; chunks are contiguous and in order. Only the last chunk may end in a partial block.
struct OfferChunk {
  TransferKey key;
  std::uint32_t chunk = 0;
  std::uint32_t token_begin = 0;
  std::uint32_t token_end = 0;
  bool last = false;
  std::vector<BlockIndex> blocks;
  std::vector<BlockHash> hashes;          // of the full blocks
  std::vector<FirstToken> first_tokens;  // on the last chunk only
};

/// D: where to put what was offered. `local[i]` receives the i-th offered block; `skip[i]` says that D already has it.
struct Reservation {
  TransferKey key;
  std::uint32_t chunk = 0;
  std::vector<BlockIndex> local;
  std::vector<bool> skip;
};

enum class TransferEnd : std::uint8_t { committed, invalid, expired, aborted, failed, released };
std::string_view to_string(TransferEnd end);

class KvTransferPort {
 public:
  virtual ~KvTransferPort() = default;
  // Calls from the engine thread; none waits. Unknown keys are ignored (the transfer ended meanwhile).
  virtual void begin_send(const protocol::TransferRoute& route, RequestId request) = 0;
  virtual void offer(OfferChunk chunk) = 0;
  virtual void begin_receive(const protocol::TransferRoute& route, RequestId request, Duration deadline) = 0;
  virtual void reserve(Reservation reservation) = 0;
  /// D has no room: the offer stays queued (P's pin is renewed) and ReserveBlocks is posted again later.
  virtual void refuse_reservation(TransferKey key, std::uint32_t chunk) = 0;
  /// P: the same pinned chunks, to another peer under a higher attempt. The old attempt gets no further event.
  virtual void reoffer(const protocol::TransferRoute& route) = 0;
  /// Either side: stop. Pins and reservations end by events as usual.
  virtual void cancel(TransferKey key, std::string reason) = 0;
};

// Events into the engine's inbox, in order for each key.

struct ReserveBlocks {  // D: an offer arrived; answer with reserve() or refuse_reservation()
  TransferKey key;
  std::uint32_t chunk = 0;
  std::uint32_t token_begin = 0;
  std::uint32_t token_end = 0;
  std::vector<BlockHash> hashes;
};
struct ChunkCommitted {  // D: read and validated; the blocks may enter the prefix cache
  TransferKey key;
  std::uint32_t chunk = 0;
};
struct ChunkDiscarded {  // D: no read into these blocks is under way any more, their content is not valid; free them
  TransferKey key;
  std::uint32_t chunk = 0;
};
struct ReceiveComplete {  // D: all chunks committed; decode may start
  TransferKey key;
  std::uint32_t token_end = 0;
  std::vector<FirstToken> first_tokens;
  std::uint64_t bytes = 0;
};
struct ReceiveFailed {  // D: no further event for the key. Committed chunks stay usable as prefix.
  TransferKey key;
  TransferEnd end = TransferEnd::failed;
  Error error;
};
struct ChunkReleased {  // P: drop exactly one pin of that chunk's blocks
  TransferKey key;
  std::uint32_t chunk = 0;
  TransferEnd end = TransferEnd::committed;
};
struct SendEnded {  // P: no further event for the key
  TransferKey key;
  TransferEnd end = TransferEnd::committed;
  std::string detail;
  std::uint64_t bytes = 0;
};

using TransferEvent = std::variant<ReserveBlocks, ChunkCommitted, ChunkDiscarded, ReceiveComplete, ReceiveFailed,
                                   ChunkReleased, SendEnded>;

}  // namespace penstock::worker
