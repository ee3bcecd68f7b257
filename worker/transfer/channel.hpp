// The worker-to-worker control listener and its channels, plain or TLS: each message framed by its own KV header (its
// body length is in it). A channel carries HELLO one way and one answer back, then stays open so that its end tells of
// a dead peer. It runs on a thread of its own, so that handshakes never hold up the service's I/O thread; what it has
// to tell goes there through `post`.
// Owner: the transfer service. Threads: calls on the service's thread, events by `post`. Bounds: channels_max channels,
// one message buffered each way.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/async/tls.hpp"
#include "common/base/bytes.hpp"
#include "common/time/clock.hpp"
#include "worker/core/transfer/actions.hpp"
#include "worker/transfer/driver.hpp"

namespace penstock::worker::transfer {

/// Told on the service's thread.
class ChannelEvents {
 public:
  virtual ~ChannelEvents() = default;
  virtual HelloResult on_hello(base::BytesView frame) = 0;
  virtual void on_reply(LinkId link, base::BytesView frame) = 0;
  virtual void on_closed(LinkId link, const std::string& why) = 0;
  /// Dialled in vain, and not for a passing reason: this side or the other one does not trust the other's certificate.
  virtual void on_dial_refused(LinkId link, const std::string& why) = 0;
  /// Somebody who connected was not let in; told of at most one a second.
  virtual void on_stranger(const std::string& who_and_why) = 0;
};

struct ChannelTls {
  async::TlsContextPtr server;  // for peers that connect; null: plain
  async::TlsContextPtr client;  // for peers that are dialled
};

class Channels {
 public:
  static constexpr std::size_t channels_max = 4096;
  /// Runs the call on the service's thread; drops it once the service has stopped.
  using Post = std::function<void(std::function<void()> call)>;

  /// `events` outlives the channels.
  Channels(ChannelTls tls, Post post, ChannelEvents& events);
  ~Channels();  // closes all of them and joins the thread

  /// Throws std::runtime_error with a sentence. Before the first other call.
  void listen(const std::string& host, std::uint16_t port);
  std::uint16_t port() const;

  /// The answer comes by on_reply(), a failure by on_closed().
  void dial(LinkId link, const std::string& address, base::Bytes hello);
  /// Nothing more is told of the link.
  void close(LinkId link);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace penstock::worker::transfer
