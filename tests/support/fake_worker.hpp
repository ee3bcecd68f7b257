// A scripted worker: speaks the control protocol over loopback TCP, gives tokens that depend only on choice and
// position, and fails where it is told to. For tests of the router. Thread: the executor it is given.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "common/async/frame_connection.hpp"
#include "common/async/task_group.hpp"
#include "common/protocol/messages.hpp"

namespace penstock::test {

/// Where it fails; 0 is never. Positions are output positions of any choice.
struct FakeFaults {
  std::uint32_t dies_before = 0;    // closes its port and all connections instead of sending that position
  std::uint32_t stalls_before = 0;  // sends nothing more for the request
  std::uint32_t gap_before = 0;     // leaves that position out
  std::uint32_t repeats_at = 0;     // sends that position twice
  std::uint32_t refuses = 0;        // answers so many requests with `refusal`
  Error refusal{ErrorCode::resource_exhausted, "scripted refusal"};
  bool has_wrong_hashes = false;
  std::uint32_t blob_drops = 0;  // closes the connection instead of sending a blob, so many times
};

struct FakeWorkerOptions {
  std::string model = "fake";
  protocol::Role role = protocol::Role::unified;
  std::string text = "abcdefghijklmnopqrstuvwxyz";  // token of a position: text[(position + shift * choice) % size]
  std::uint32_t choice_shift = 3;
  std::string chat_template;  // "" is ChatML
  std::uint32_t ends_at = 0;  // the end-of-sequence token is drawn at that position; 0: never
  std::uint32_t context_tokens = 4096;
  std::uint32_t cached_tokens = 0;  // what usage says
  std::uint32_t sequences_max = 64;
  Duration step_time{};
  FakeFaults faults;
};

class FakeWorker {
 public:
  FakeWorker(boost::asio::any_io_executor executor, FakeWorkerOptions options);
  ~FakeWorker();
  FakeWorker(const FakeWorker&) = delete;
  FakeWorker& operator=(const FakeWorker&) = delete;

  std::string address() const;
  /// Closes the port and all connections at once, as a killed process would.
  void die();

  std::uint32_t blobs_asked() const { return blobs_asked_; }
  const std::vector<protocol::Generate>& generates() const { return generates_; }
  const std::vector<protocol::Prefill>& prefills() const { return prefills_; }
  const std::vector<protocol::Expect>& expects() const { return expects_; }
  const std::vector<protocol::Abort>& aborts() const { return aborts_; }
  InstanceId instance() const { return instance_; }
  TokenId token(std::uint32_t choice, std::uint32_t position) const;

 private:
  boost::asio::awaitable<void> accept_loop();
  boost::asio::awaitable<void> serve(std::shared_ptr<async::FrameConnection> connection);
  boost::asio::awaitable<void> generate(protocol::GenerateSpec spec, std::uint32_t begin, std::uint32_t end);
  void handle(protocol::RouterMessage message);
  bool is_refused(const protocol::GenerateSpec& spec);
  void send(const protocol::WorkerMessage& message);
  protocol::Welcome welcome(const protocol::Hello& hello) const;
  std::string chat_template() const;
  std::uint64_t kv_blocks() const;
  protocol::Load load() const;
  std::optional<protocol::ChoiceStep> step(const protocol::GenerateSpec& spec, const protocol::Choice& choice,
                                           std::uint32_t position) const;

  FakeWorkerOptions options_;
  InstanceId instance_;
  boost::asio::ip::tcp::acceptor acceptor_;
  std::shared_ptr<async::FrameConnection> connection_;  // shared with the coroutine that reads it
  async::TaskGroup tasks_;
  std::uint32_t blobs_asked_ = 0;
  std::vector<protocol::Generate> generates_;
  std::vector<protocol::Prefill> prefills_;
  std::vector<protocol::Expect> expects_;
  std::vector<protocol::Abort> aborts_;
  std::unordered_set<RequestId> aborted_;
  std::uint32_t refusals_left_ = 0;
  std::uint64_t requests_seen_ = 0;
  bool is_dead_ = false;
};

}  // namespace penstock::test
