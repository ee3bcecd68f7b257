// A plain socket to a Cluster's public port, to be slow, rude or half-closed with. One thread, the cluster's: reads and
// writes never block, waits run the cluster's executor.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <string>
#include <string_view>

#include "tests/integration/router/cluster.hpp"

namespace penstock::test {

class RawClient {
 public:
  explicit RawClient(Cluster& cluster, int receive_buffer_bytes = 0);

  /// Gives up on a connection that takes nothing more.
  bool send(std::string_view text);
  /// Takes what is there, at most `bytes_max`.
  void read_some(std::size_t bytes_max = 64 << 10);
  /// Reads until `mark` has come; false if the connection ended or the cluster's patience did.
  bool read_until(std::string_view mark);
  bool read_to_end();
  void shutdown_send();

  const std::string& received() const { return received_; }
  bool is_at_end() const { return is_at_end_; }

 private:
  Cluster& cluster_;
  boost::asio::ip::tcp::socket socket_;
  std::string received_;
  bool is_at_end_ = false;
};

/// A request with a JSON body, as bytes. `length`: what content-length says, if not the body's.
std::string raw_post(std::string_view path, std::string_view body, std::string_view more_headers = "");

}  // namespace penstock::test
