// The worker-to-worker control listener and its channels: non-blocking TCP, each message framed by its own KV header
// (its body length is in it). A channel carries HELLO one way and one answer back, then stays open so that its end
// tells of a dead peer. Owner: the service's I/O thread. Bounds: channels_max channels, one message buffered each way.
#pragma once

#include <poll.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "common/time/clock.hpp"
#include "worker/core/transfer/wire.hpp"
#include "worker/transfer/driver.hpp"

namespace penstock::worker::transfer {

class ChannelEvents {
 public:
  virtual ~ChannelEvents() = default;
  virtual HelloResult on_hello(base::BytesView frame) = 0;
  virtual void on_reply(LinkId link, base::BytesView frame) = 0;
  virtual void on_closed(LinkId link, const std::string& why) = 0;
};

class Channels {
 public:
  static constexpr std::size_t channels_max = 4096;

  ~Channels();
  /// Throws std::runtime_error with a sentence. Any thread, before the first other call.
  void listen(const std::string& host, std::uint16_t port);
  std::uint16_t port() const { return port_; }

  void dial(LinkId link, const std::string& address, base::Bytes hello);
  void close(LinkId link);

  /// The descriptors to wait for, appended; then, after poll(), what to do about them.
  void collect(std::vector<pollfd>& out) const;
  void handle(const std::vector<pollfd>& ready, TimePoint now, ChannelEvents& events);
  /// Ends channels that never said HELLO.
  void tick(TimePoint now);

 private:
  enum class Stage : std::uint8_t { awaits_hello, awaits_reply, open };
  struct Channel {
    LinkId link = 0;
    Stage stage = Stage::awaits_hello;
    bool close_after_write = false;
    TimePoint since{};
    base::Bytes in;
    base::Bytes out;
  };
  void accept(TimePoint now);
  bool read(int fd, Channel& channel, TimePoint now, ChannelEvents& events);
  bool write(int fd, Channel& channel);
  void end(int fd, const std::string& why, ChannelEvents& events);

  int listener_ = -1;
  std::uint16_t port_ = 0;
  std::map<int, Channel> channels_;                           // by descriptor
  std::vector<std::pair<LinkId, std::string>> failed_dials_;  // told at the next handle()
};

}  // namespace penstock::worker::transfer
