// The life of one prompt after it was tokenised: where it runs, which tokens count, when it is sent again, and how it
// ends. A pure machine: events in, actions out, time as a value; the proxy and the simulator drive it.
//
// Rules. Exactly one terminal outcome. Before the first visible token a failed attempt is simply run again; after it
// the living choices move, with their accepted tokens, to another worker (a pause for the client, not an error). A
// token counts once: repeats are dropped by position, a gap fails the attempt. Whatever holds the request is told to
// stop. Disaggregated: PREFILL and EXPECT go out together; the first token of every choice comes from P, the rest from
// D; if D dies while P still pins the KV, P offers it to another D.
//
// Owned by one call; not for two threads at once. Memory: the prompt, 4 bytes an output token, and at most
// `early_tokens_max` tokens that came before their turn.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/base/id.hpp"
#include "common/base/types.hpp"
#include "common/protocol/messages.hpp"
#include "common/time/clock.hpp"

namespace penstock::router {

struct MigrationLimits {
  std::uint32_t retries_max = 1;     // before the first visible token
  std::uint32_t refusals_max = 3;    // attempts that a worker refused without starting
  std::uint32_t migrations_max = 2;  // after it
  Duration no_progress_decode = std::chrono::seconds(10);
  Duration no_progress_prefill = std::chrono::seconds(60);
  std::uint32_t early_tokens_max = 1024;
};

/// Where an attempt runs. Without a prefill worker, `decode` does all of it.
struct AttemptPlace {
  InstanceId decode;
  std::optional<InstanceId> prefill;
  std::string decode_address;   // kv_address of the decode worker
  std::string prefill_address;  // kv_address of the prefill worker
};

enum class PlaceKind : std::uint8_t {
  first,
  again,    // a worker refused it without starting
  retry,    // an attempt failed before the first visible token
  migrate,  // after it
  reoffer,  // the decode worker failed, the prefill worker still has the KV
};

/// Whether prefill and decode may be apart.
enum class SplitUse : std::uint8_t { allowed, forbidden };

/// Asks for a place; answer with on_placed() or on_not_placed(). Whatever ran before has been told to stop.
struct WantPlace {
  PlaceKind kind = PlaceKind::first;
  SplitUse split = SplitUse::allowed;
  std::optional<InstanceId> prefill;  // reoffer: this worker holds the KV; only a new decode worker is wanted
};
struct SendTo {
  InstanceId worker;
  protocol::RouterMessage message;
};
/// Tokens that the client may see, in order and without repeats. `step` is cut to what is new.
struct Deliver {
  protocol::ChoiceStep step;
};
/// The KV has left that prefill worker, or is gone; decode goes on.
struct PrefillDone {
  InstanceId worker;
};
struct RequestUsage {
  std::uint32_t prompt_tokens = 0;
  std::uint32_t completion_tokens = 0;  // of all choices, up to and including the token that completed a stop
  std::uint32_t cached_tokens = 0;
};
struct Completed {};
struct Cancelled {};
struct Failed {
  Error error;
  Duration retry_after{};
  bool is_worker_lost = false;
};
/// The one end. No action follows it.
struct Ended {
  std::variant<Completed, Cancelled, Failed> outcome;
};
using Action = std::variant<WantPlace, SendTo, Deliver, PrefillDone, Ended>;
using Actions = std::vector<Action>;

/// What both workers of a transfer must agree on; the shell signs it with the key that workers know.
struct TransferParties {
  TransferId transfer;
  std::uint32_t attempt = 0;
  InstanceId prefill;
  InstanceId decode;
};
using TicketMaker = std::function<std::string(const TransferParties& parties)>;

class RequestState {
 public:
  /// `spec` has the prompt, the choices (nothing accepted) and the sampling; attempt and deadline are set here.
  RequestState(protocol::GenerateSpec spec, const MigrationLimits& limits, std::optional<TimePoint> deadline,
               TicketMaker ticket = {});

  void start(TimePoint now, Actions& out);
  void on_placed(TimePoint now, const AttemptPlace& place, Actions& out);
  void on_not_placed(TimePoint now, Error error, Duration retry_after, Actions& out);
  void on_step(TimePoint now, InstanceId worker, protocol::ChoiceStep&& step, Actions& out);
  /// No token, but the worker has something to show for the request: whoever is waited for is given time again.
  void on_progress(TimePoint now, InstanceId worker, const protocol::Progress& progress);
  void on_request_error(TimePoint now, InstanceId worker, const protocol::RequestError& error, Actions& out);
  void on_transfer_status(TimePoint now, InstanceId worker, const protocol::TransferStatus& status, Actions& out);
  void on_worker_lost(TimePoint now, InstanceId worker, Actions& out);
  /// A stop string is complete after `tokens_kept` tokens of the choice.
  void on_stop_string(TimePoint now, std::uint32_t choice, std::uint32_t tokens_kept, Actions& out);
  void on_client_gone(TimePoint now, Actions& out);
  void on_timer(TimePoint now, Actions& out);
  /// When on_timer() is due.
  std::optional<TimePoint> next_timer() const;

  bool is_ended() const { return phase_ == Phase::ended; }
  bool has_visible_token() const { return has_visible_token_; }
  const protocol::GenerateSpec& spec() const { return spec_; }
  RequestId id() const { return spec_.request; }
  RequestUsage usage() const;
  std::uint32_t attempts() const { return spec_.attempt + 1; }
  std::uint32_t retries() const { return retries_; }
  std::uint32_t migrations() const { return migrations_; }
  std::uint32_t gaps() const { return gaps_; }
  std::uint32_t repeats() const { return repeats_; }
  /// Workers on which this request failed, to be avoided.
  const std::vector<InstanceId>& failed_workers() const { return failed_; }
  std::uint32_t output_tokens(std::uint32_t choice) const;

 private:
  enum class Phase : std::uint8_t { created, placing, running, ended };
  enum class Duty : std::uint8_t { whole, prefill, decode };
  enum class Peer : std::uint8_t { prefill, decode };
  enum class Failure : std::uint8_t {
    refused,  // never started there
    lost,     // the worker is away and can't be told anything
    broken,   // the worker is there; it is told to stop
  };
  struct Living {
    std::uint32_t index = 0;
    std::vector<TokenId> accepted;
    std::uint32_t counted = 0;  // of accepted; fewer if a stop string cut the rest
    bool is_finished = false;
    std::vector<protocol::ChoiceStep> early;  // of D, before P's first token
  };
  struct Holder {
    InstanceId worker;
    std::uint32_t attempt = 0;  // of the message that started it there
    Duty duty = Duty::whole;
    bool is_done = false;  // prefill: the KV has been taken or is gone
  };

  SplitUse split_use() const;
  void dispatch(TimePoint now, Actions& out);
  void dispatch_reoffer(TimePoint now, Actions& out);
  protocol::GenerateSpec current_spec(TimePoint now) const;
  protocol::TransferRoute route_to(Peer peer) const;
  void accept(TimePoint now, Living& living, protocol::ChoiceStep&& step, Actions& out);
  void release_prefill(Actions& out);
  void end_if_complete(InstanceId finisher, Actions& out);
  void end(Actions& out, Ended ended, const char* reason);
  void fail_attempt(TimePoint now, InstanceId worker, const Error& error, Duration retry_after, Failure failure,
                    Actions& out);
  void drop_holders(Actions& out, const char* reason, std::optional<InstanceId> except);
  void touch(TimePoint now);
  InstanceId awaited_worker() const;
  Living* find_choice(std::uint32_t index);
  Holder* find_holder(InstanceId worker);
  std::uint64_t early_tokens() const;

  protocol::GenerateSpec spec_;
  MigrationLimits limits_;
  std::optional<TimePoint> deadline_;
  TicketMaker ticket_;

  Phase phase_ = Phase::created;
  PlaceKind wanted_ = PlaceKind::first;
  std::vector<Living> choices_;
  std::vector<Holder> holders_;  // of the running attempt; while a reoffer is placed, the prefill worker only
  AttemptPlace place_;
  std::optional<TransferId> transfer_;
  std::optional<TimePoint> progress_deadline_;
  std::vector<InstanceId> failed_;
  std::optional<protocol::Usage> usage_;
  bool has_dispatched_ = false;
  bool has_visible_token_ = false;
  bool has_attempt_token_ = false;  // of the attempt that runs
  bool prompt_logprobs_given_ = false;
  std::uint32_t retries_ = 0, refusals_ = 0, migrations_ = 0, gaps_ = 0, repeats_ = 0;
};

}  // namespace penstock::router
