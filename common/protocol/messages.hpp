// What router and worker say to each other, as plain values. Cores on both sides see only these; the protobuf form and
// the frames are in codec.hpp. Design: one long-lived connection a pair, made by the router; tokens in, tokens out.
// Times on the wire are durations, never wall clocks. All loads are in tokens, all sizes in bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/base/error.hpp"
#include "common/base/id.hpp"
#include "common/base/types.hpp"
#include "common/time/clock.hpp"

namespace penstock::protocol {

constexpr std::uint32_t protocol_version = 1;
constexpr std::uint32_t frame_bytes_max = 1u << 20;  // control frames; blobs and snapshots travel in chunks below it
// A message may go on over several frames up to here: long prompts one way, their log probabilities the other.
constexpr std::uint32_t message_bytes_max = 16u << 20;

enum class Role : std::uint8_t { unified, prefill, decode };

// ---- Sampling -----------------------------------------------------------------------------------------------------

/// How to choose tokens. Defaults are "off": temperature 1, no truncation, no penalties.
/// Order of operations: logit bias, penalties, temperature, top-k, typical/min-p, top-p, draw.
struct SamplingParams {
  float temperature = 1.0f;         // 0 is greedy
  std::uint32_t top_k = 0;          // 0 is off
  float top_p = 1.0f;               // (0, 1]
  float min_p = 0.0f;               // [0, 1]
  float repetition_penalty = 1.0f;  // > 0; over prompt and output
  float presence_penalty = 0.0f;    // [-2, 2]; over output
  float frequency_penalty = 0.0f;   // [-2, 2]; over output
  std::uint64_t seed = 0;           // with choice and position it fixes the random number (always set by the router)
  std::vector<std::pair<TokenId, float>> logit_bias;
  std::vector<TokenId> stop_token_ids;  // besides the model's end-of-sequence tokens
  std::uint32_t tokens_max = 0;         // output tokens a choice; at least 1, or 0 to score the prompt only
  std::uint32_t tokens_min = 0;         // no end-of-sequence or stop id before that many
  bool ignore_eos = false;
  std::optional<std::uint32_t> logprobs;         // of output tokens: how many alternatives (0: the chosen one only)
  std::optional<std::uint32_t> prompt_logprobs;  // of prompt tokens; switches the prefix cache hit off

  friend bool operator==(const SamplingParams&, const SamplingParams&) = default;
};

struct TokenLogprob {
  TokenId token = 0;
  float logprob = 0;  // natural log, of the raw distribution (before bias, penalties, temperature)
  friend bool operator==(const TokenLogprob&, const TokenLogprob&) = default;
};

/// The chosen token's own logprob and rank (1 is the most likely), and the most likely tokens in order.
struct PositionLogprobs {
  TokenLogprob chosen;
  std::uint32_t rank = 0;
  std::vector<TokenLogprob> top;
  friend bool operator==(const PositionLogprobs&, const PositionLogprobs&) = default;
};

// ---- Router to worker ---------------------------------------------------------------------------------------------

struct Hello {
  std::uint32_t version = protocol_version;
  std::string router_id;
  std::string model;                       // the name that the router serves, "" for any
  std::vector<TokenId> hash_probe_tokens;  // the worker answers with its block hashes of these
  friend bool operator==(const Hello&, const Hello&) = default;
};

/// A choice of a request. `accepted` holds the tokens that the client has already been given (a migrated request goes
/// on after them): they are part of the context and count for penalties, min/max tokens and random numbers.
struct Choice {
  std::uint32_t index = 0;
  std::vector<TokenId> accepted;
  friend bool operator==(const Choice&, const Choice&) = default;
};

/// One request, whole: everything that a worker needs to produce its tokens.
struct GenerateSpec {
  RequestId request;
  std::uint32_t attempt = 0;  // +1 for each re-dispatch; older attempts are answered "aborted"
  std::vector<TokenId> prompt;
  std::vector<Choice> choices;  // the living ones; indices need not be dense after a migration
  SamplingParams sampling;
  std::string cache_salt;     // tenant salt; part of the block identity
  std::string adapter;        // "" for the base model
  std::int32_t priority = 0;  // higher goes first
  Duration deadline{};        // from receipt; zero is none
  std::string trace;          // W3C traceparent of this request at the router, "" if nobody traces it
  friend bool operator==(const GenerateSpec&, const GenerateSpec&) = default;
};

/// How a prefill worker and a decode worker find each other for one request.
struct TransferRoute {
  TransferId transfer;
  std::uint32_t attempt = 0;
  InstanceId peer;           // PREFILL: the decode worker; EXPECT: the prefill worker
  std::string peer_address;  // host:port of the peer's worker-to-worker control listener
  std::string ticket;        // made by the router: HMAC over (transfer, attempt, both instances, expiry); single use
  friend bool operator==(const TransferRoute&, const TransferRoute&) = default;
};

struct Generate {  // one worker does both prefill and decode
  GenerateSpec spec;
  friend bool operator==(const Generate&, const Generate&) = default;
};
struct Prefill {  // compute the prompt, stream the first token of every choice, offer the KV
  GenerateSpec spec;
  TransferRoute route;
  friend bool operator==(const Prefill&, const Prefill&) = default;
};
struct Expect {  // fetch the KV as it is offered, then decode from the second token on
  GenerateSpec spec;
  TransferRoute route;
  friend bool operator==(const Expect&, const Expect&) = default;
};
struct Reoffer {  // to P: the decode worker died, offer the same KV to another
  RequestId request;
  TransferRoute route;  // same transfer, higher attempt, new peer
  friend bool operator==(const Reoffer&, const Reoffer&) = default;
};
struct Release {  // to P: nobody will read the KV; unpin
  RequestId request;
  TransferId transfer;
  std::uint32_t attempt = 0;
  friend bool operator==(const Release&, const Release&) = default;
};
struct Abort {  // idempotent, by exact id
  RequestId request;
  std::optional<std::uint32_t> choice;  // one choice, or all
  std::uint32_t tokens_kept = 0;        // output tokens of that choice that count (a stop string cut the rest)
  std::string reason;
  friend bool operator==(const Abort&, const Abort&) = default;
};
struct SnapshotRequest {
  friend bool operator==(const SnapshotRequest&, const SnapshotRequest&) = default;
};
struct GetBlob {
  std::string digest;  // BLAKE3 in hex
  friend bool operator==(const GetBlob&, const GetBlob&) = default;
};
struct Drain {
  Duration grace{};
  friend bool operator==(const Drain&, const Drain&) = default;
};
struct Ping {
  std::uint64_t nonce = 0;
  friend bool operator==(const Ping&, const Ping&) = default;
};

// ---- Worker to router ---------------------------------------------------------------------------------------------

/// What the router needs to speak for this worker without any model file. Large texts are blobs by digest.
struct ModelCard {
  std::string name;
  std::string revision;              // digest of the weights file(s)
  std::string architecture;          // "llama", "qwen2", "qwen3"
  std::uint32_t context_tokens = 0;  // the longest prompt + output that this worker takes
  std::uint32_t vocabulary_size = 0;
  std::string tokenizer_digest;  // blob: tokenizer.json
  std::uint64_t tokenizer_bytes = 0;
  std::string chat_template_digest;  // blob: Jinja source; "" if the model has none
  std::uint64_t chat_template_bytes = 0;
  std::optional<TokenId> bos_token;
  bool add_bos = false;
  std::vector<TokenId> eos_tokens;
  std::string bos_text, eos_text;                           // for the template's variables
  std::optional<float> default_temperature, default_top_p;  // generation_config.json
  std::optional<std::uint32_t> default_top_k;
  friend bool operator==(const ModelCard&, const ModelCard&) = default;
};

struct Welcome {
  std::uint32_t version = protocol_version;
  InstanceId instance;
  std::uint64_t epoch = 0;  // of the cache event stream; a new epoch empties what the router knows
  Role role = Role::unified;
  ModelCard card;
  std::uint32_t block_tokens = 16;
  std::string hash_scheme;
  std::string kv_dtype;               // "bf16", "f16", "f32"; part of the block identity
  std::vector<BlockHash> hash_probe;  // of Hello::hash_probe_tokens, without a salt
  std::uint64_t kv_blocks = 0;
  std::uint32_t sequences_max = 0;
  std::uint32_t tensor_parallel = 1;
  std::string kv_layout_fingerprint;  // workers with different fingerprints are never paired
  std::string kv_address;             // host:port of the worker-to-worker control listener; "" if none
  std::vector<std::pair<std::string, std::string>> topology;
  friend bool operator==(const Welcome&, const Welcome&) = default;
};

struct Blob {
  std::string digest;
  std::uint64_t offset = 0;
  std::uint64_t total_bytes = 0;
  std::string bytes;
  friend bool operator==(const Blob&, const Blob&) = default;
};

enum class FinishReason : std::uint8_t {
  stop,     // end-of-sequence or a stop id
  length,   // max tokens or the end of the context
  aborted,  // by Abort; tokens so far are valid
};

struct Usage {
  std::uint32_t prompt_tokens = 0;
  std::uint32_t cached_tokens = 0;       // of the prompt, found in this worker's prefix cache or received by transfer
  std::uint32_t transferred_tokens = 0;  // of the prompt, received from a prefill worker
  friend bool operator==(const Usage&, const Usage&) = default;
};

/// What one engine step produced for one choice. `position` is the output index of tokens[0], so that a receiver can
/// tell a repeat or a gap (after a migration) from the next token.
struct ChoiceStep {
  RequestId request;
  std::uint32_t attempt = 0;
  std::uint32_t choice = 0;
  std::uint32_t position = 0;
  std::vector<TokenId> tokens;
  std::vector<PositionLogprobs> logprobs;  // one a token, if asked for
  std::optional<FinishReason> finish;
  std::optional<Usage> usage;                     // with the first token and with the finish
  std::vector<PositionLogprobs> prompt_logprobs;  // once, with choice 0's first step; for prompt tokens 1 and later
  friend bool operator==(const ChoiceStep&, const ChoiceStep&) = default;
};

/// A sign of life of a request that has given no token for a while: its prompt is being computed, its KV is coming, or
/// whoever is before it is being served. Comes only if something moved since the last one.
struct Progress {
  RequestId request;
  std::uint32_t attempt = 0;
  std::uint32_t computed_tokens = 0;  // known tokens whose KV is there
  friend bool operator==(const Progress&, const Progress&) = default;
};

struct Step {  // all of this router's choices that moved in one engine step
  std::vector<ChoiceStep> choices;
  std::vector<Progress> progress;
  friend bool operator==(const Step&, const Step&) = default;
};

struct BlockStored {
  std::uint32_t position = 0;  // index of the first block below within its sequence, absolute
  BlockHash parent;            // zero at position 0
  std::vector<BlockHash> blocks;
  friend bool operator==(const BlockStored&, const BlockStored&) = default;
};
struct BlockRemoved {
  std::vector<BlockHash> blocks;
  friend bool operator==(const BlockRemoved&, const BlockRemoved&) = default;
};
struct AllBlocksCleared {
  friend bool operator==(const AllBlocksCleared&, const AllBlocksCleared&) = default;
};
using CacheEvent = std::variant<BlockStored, BlockRemoved, AllBlocksCleared>;

struct CacheEvents {
  std::uint64_t epoch = 0;
  std::uint64_t sequence = 0;  // +1 a message; a gap means: ask for a snapshot
  std::vector<CacheEvent> events;
  friend bool operator==(const CacheEvents&, const CacheEvents&) = default;
};

/// The whole cache as of `sequence`; live events with a higher sequence are applied on top. Comes in parts.
struct Snapshot {
  std::uint64_t epoch = 0;
  std::uint64_t sequence = 0;
  std::uint32_t part = 0;
  bool last = false;
  std::vector<BlockStored> stored;
  friend bool operator==(const Snapshot&, const Snapshot&) = default;
};

struct Load {
  std::uint32_t running = 0;  // sequences
  std::uint32_t waiting = 0;
  std::uint64_t waiting_prefill_tokens = 0;  // not yet computed, over waiting and running
  std::uint64_t context_tokens = 0;          // over running sequences
  std::uint64_t kv_blocks_total = 0;
  std::uint64_t kv_blocks_free = 0;     // free or evictable at once
  std::uint64_t kv_blocks_pinned = 0;   // held for transfers
  float tokens_per_second_prefill = 0;  // measured, smoothed; 0 when unknown
  float step_seconds_decode = 0;        // measured, smoothed; 0 when unknown
  bool draining = false;
  std::uint64_t requests_seen = 0;  // GENERATE, PREFILL and EXPECT taken from this router so far
  friend bool operator==(const Load&, const Load&) = default;
};

struct RequestError {  // ends the whole request at this worker
  RequestId request;
  std::uint32_t attempt = 0;
  Error error;
  Duration retry_after{};  // zero: not said
  friend bool operator==(const RequestError&, const RequestError&) = default;
};

struct TransferStatus {  // to the router, for its records and for re-planning
  RequestId request;
  TransferId transfer;
  std::uint32_t attempt = 0;
  std::string outcome;  // "committed", "invalid", "expired", "aborted", "failed"
  std::string detail;
  std::uint64_t bytes = 0;
  friend bool operator==(const TransferStatus&, const TransferStatus&) = default;
};

struct Goodbye {
  std::string reason;
  friend bool operator==(const Goodbye&, const Goodbye&) = default;
};
struct Pong {
  std::uint64_t nonce = 0;
  friend bool operator==(const Pong&, const Pong&) = default;
};
struct ProtocolError {  // the connection is closed after it
  Error error;
  friend bool operator==(const ProtocolError&, const ProtocolError&) = default;
};

using RouterMessage =
    std::variant<Hello, Generate, Prefill, Expect, Reoffer, Release, Abort, SnapshotRequest, GetBlob, Drain, Ping>;
using WorkerMessage = std::variant<Welcome, Blob, Step, CacheEvents, Snapshot, Load, RequestError, TransferStatus,
                                   Goodbye, Pong, ProtocolError>;

}  // namespace penstock::protocol
