// The scheduler's own records: a request, its choices, and the transfers that hold blocks for it.
// Owner: Scheduler; not for other modules.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "worker/core/scheduler/scheduler.hpp"

namespace penstock::worker {

enum class SequenceState : std::uint8_t {
  blocked,    // a fork that waits until the leader has computed the prompt
  receiving,  // its KV comes from a prefill worker
  waiting,    // for a row and blocks; may hold blocks of a fork or a transfer
  running,
};

/// One choice.
struct Sequence {
  Request* request = nullptr;
  std::uint32_t choice = 0;
  SequenceState state = SequenceState::waiting;
  std::vector<TokenId> tokens;  // known: prompt, accepted, drawn
  std::size_t prompt = 0;
  std::size_t computed = 0;        // their KV is in `blocks`
  std::vector<BlockIndex> blocks;  // the block table, one reference each
  std::vector<BlockHash> hashes;   // of the first full blocks of `tokens`, as far as needed yet
  std::size_t committed = 0;       // blocks that are in the prefix cache
  bool cacheable = true;           // false once a parent has left the cache
  std::uint32_t row = 0;
  std::size_t planned = 0;  // tokens in the steps under way
  TimePoint queued_at{};
  bool admitted = false;                           // has had a row
  bool announced = false;                          // usage went out with a token
  std::size_t told_tokens = 0, told_computed = 0;  // at the last progress report
  std::uint32_t cached_tokens = 0;
  std::uint32_t transferred_tokens = 0;

  std::size_t remaining() const { return tokens.size() - computed; }
  std::uint32_t output() const { return static_cast<std::uint32_t>(tokens.size() - prompt); }
};

struct Request {
  protocol::GenerateSpec spec;  // without prompt and choices, which are in the sequences
  std::optional<TransferKey> key;
  bool expects = false;  // with a key: this side receives; otherwise it sends
  std::uint64_t arrival = 0;
  std::optional<TimePoint> deadline;
  BlockHash root;
  std::uint32_t output_limit = 0;
  std::vector<TokenId> ends;  // ids that end a choice, and may not be drawn before tokens_min
  std::vector<std::unique_ptr<Sequence>> sequences;
  Sequence* leader = nullptr;  // the first choice without accepted tokens, until the others have forked from it
  std::vector<protocol::PositionLogprobs> prompt_logprobs;
  bool prompt_scored = false;  // nothing left to score, or not asked for

  bool sends() const { return key && !expects; }
  bool wants_scores(const Sequence& sequence) const { return !prompt_scored && &sequence == leader; }
};

/// P's side of a transfer. Lives until SendEnded; holds its own references and pins, so the request may go earlier.
struct Scheduler::SendState {
  RequestId request;
  std::uint32_t attempt = 0;  // of the request
  std::vector<BlockIndex> blocks;
  std::vector<BlockHash> hashes;
  struct Chunk {
    std::size_t block_begin = 0, block_end = 0;
    bool pinned = true;
  };
  std::vector<Chunk> chunks;
  std::size_t total = 0;    // tokens whose KV is to be sent
  std::size_t offered = 0;  // tokens
  bool complete = false;    // the leader has computed all; `blocks` holds the last partial block too
  bool cancelled = false;
  std::vector<FirstToken> first_tokens;
};

/// D's side. Lives until ReceiveComplete or ReceiveFailed. The blocks are the leader's, or orphans once it has gone.
struct Scheduler::ReceiveState {
  Request* request = nullptr;
  std::size_t matched = 0;   // leading blocks that were cached here
  std::size_t reserved = 0;  // tokens that chunks have been taken for
  bool started = false;
  struct Chunk {
    std::uint32_t index = 0;
    std::size_t token_end = 0;
    bool committed = false;
  };
  std::vector<Chunk> chunks;
  std::vector<BlockIndex> orphans;
};

/// Whether a goes before b: priority, arrival, choice.
inline bool goes_before(const Sequence* a, const Sequence* b) {
  const Request& x = *a->request;
  const Request& y = *b->request;
  if (x.spec.priority != y.spec.priority) return x.spec.priority > y.spec.priority;
  if (x.arrival != y.arrival) return x.arrival < y.arrival;
  return a->choice < b->choice;
}

}  // namespace penstock::worker
