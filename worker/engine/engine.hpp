// The engine thread: drains commands, plans a step with the pure scheduler, runs it on the executor, and gives out what
// happened. Nothing blocks it; its inbox is bounded and refuses when full.
// Owner: worker/app. Threads: post() from any thread; EngineSink is called on the engine thread and must not block.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>

#include "common/base/result.hpp"
#include "common/protocol/messages.hpp"
#include "common/time/clock.hpp"
#include "worker/engine/executor.hpp"
#include "worker/engine/kv_transfer.hpp"
#include "worker/engine/probe.hpp"
#include "worker/engine/step_watch.hpp"

namespace penstock::worker {

struct EngineConfig {
  std::uint32_t step_tokens_max = 512;  // token budget of one step
  std::uint32_t sequences_max = 64;
  std::uint32_t waiting_max = 1024;
  std::uint32_t prefill_chunk_tokens_max = 256;  // of one request, and of all while any request decodes
  float pinned_share_max = 0.75f;  // of the pool, for KV that waits for its decode worker; PREFILL beyond is refused
  bool prefix_cache = true;
  std::uint32_t inbox_max = 65536;
  Duration ahead_min =
      std::chrono::microseconds(500);  // how long before a step's end the next is started at the latest
  Duration load_interval = std::chrono::milliseconds(100);
  Duration step_limit{};                                 // a step that takes longer is said to be stuck; 0: none is
  Duration progress_interval = std::chrono::seconds(1);  // signs of life of long prompts and of those that wait
  std::vector<TokenId> eos_tokens;
  std::string hash_key;                      // 32 bytes; empty: the published constant of local mode
  std::vector<std::string> hash_extra_keys;  // [0] model revision, [1] KV dtype; missing ones are empty
};

struct SnapshotWanted {
  std::uint64_t ticket = 0;  // given back with the snapshot
};
struct DrainEngine {};  // refuse new requests, finish the running ones, then EngineSink::on_drained()

using EngineCommand = std::variant<protocol::Generate, protocol::Prefill, protocol::Expect, protocol::Reoffer,
                                   protocol::Release, protocol::Abort, SnapshotWanted, DrainEngine, TransferEvent>;

/// Everything about one request carries its RequestId, so that a sink can give it to the session that sent it.
class EngineSink {
 public:
  virtual ~EngineSink() = default;
  virtual void on_step(protocol::Step step) = 0;
  virtual void on_request_error(protocol::RequestError error) = 0;
  virtual void on_transfer_status(protocol::TransferStatus status) = 0;
  virtual void on_cache_events(protocol::CacheEvents events) = 0;
  virtual void on_snapshot(std::uint64_t ticket, std::vector<protocol::Snapshot> parts) = 0;
  virtual void on_load(const protocol::Load& load) = 0;  // requests_seen counts all routers' requests
  /// The last word about this dispatch: exactly once for each GENERATE, PREFILL and EXPECT that was posted, refused
  /// ones too, after its last message. The route from request to session may be dropped.
  virtual void on_request_end(RequestId /*request*/, std::uint32_t /*attempt*/) {}
  virtual void on_drained() = 0;
  virtual void on_broken(const Error& error) = 0;  // the backend failed; the process must end non-zero
  /// A step takes longer than EngineConfig::step_limit. On a thread of its own; the engine's own will hardly come back,
  /// so the process must end without waiting for it. Said once.
  virtual void on_stuck(const StuckStep& /*step*/) {}
};

class Engine {
 public:
  /// `transfer` may be null: PREFILL and EXPECT are then refused. All references outlive the engine.
  Engine(EngineConfig config, Executor& executor, KvTransferPort* transfer, EngineSink& sink, const Clock& clock,
         EngineProbe* probe = nullptr);
  ~Engine();  // stops
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  void start();
  void stop();  // joins the thread; running requests get an error
  /// False when the inbox is full or the engine stopped (transfer events are always taken).
  bool post(EngineCommand command);
  std::uint64_t epoch() const;

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace penstock::worker
