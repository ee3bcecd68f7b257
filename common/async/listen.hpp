// Opens an address to listen on, and says in one sentence why it can't.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <cstdint>
#include <string>

#include "common/base/result.hpp"

namespace penstock::async {

namespace asio = boost::asio;

enum class ReusePort : std::uint8_t { no, yes };  // several sockets on one port share its connections

/// Port 0 takes a free one. On an error the acceptor is closed.
Result<void> listen(asio::ip::tcp::acceptor& acceptor, const std::string& address, std::uint16_t port,
                    ReusePort reuse_port = ReusePort::no);

}  // namespace penstock::async
