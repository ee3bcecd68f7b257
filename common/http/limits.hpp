// What one HTTP server accepts. Defaults are for the open internet; every number is an option of the programs.
#pragma once

#include <cstddef>

#include "common/time/clock.hpp"

namespace penstock::http {

struct ServerLimits {
  std::size_t request_line_bytes_max = 8 << 10;
  std::size_t header_bytes_max = 32 << 10;  // all fields together
  std::size_t header_count_max = 100;
  Duration header_deadline = std::chrono::seconds(10);  // from the first byte to the end of the header; also handshakes
  std::size_t body_bytes_max = 8 << 20;
  Duration body_deadline = std::chrono::seconds(60);
  std::size_t body_bytes_per_second_min = 1 << 10;  // after the first 5 s
  Duration keep_alive_idle = std::chrono::seconds(75);
  std::size_t requests_per_connection_max = 10'000;
  std::size_t connections_max = 0;  // 0: half of the file-descriptor limit
  std::size_t connections_per_source_max = 1'000;
  std::size_t stream_buffer_bytes_max = 256
                                        << 10;  // unsent bytes of a stream; above it a write waits until half is sent
  Duration stream_stall_max = std::chrono::seconds(30);  // a client that takes nothing for so long is cut
  std::size_t pipelined_bytes_max = 64 << 10;            // read ahead while a request is served
};

}  // namespace penstock::http
