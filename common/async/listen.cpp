#include "common/async/listen.hpp"

namespace penstock::async {
namespace {

using asio::ip::tcp;
using Code = boost::system::error_code;

Error describe(const Code& code, const std::string& address, std::uint16_t port) {
  const std::string number = std::to_string(port);
  if (code == asio::error::address_in_use) {
    return make_error(ErrorCode::unavailable, "port " + number + " is in use: end the program that listens on " +
                                                  address + ":" + number + " or choose another port");
  }
  if (code == asio::error::access_denied) {
    return make_error(ErrorCode::permission_denied,
                      "port " + number + " needs more rights: choose a port from 1024 on");
  }
  if (code == boost::system::errc::address_not_available) {
    return make_error(ErrorCode::invalid_argument, "this machine has no address " + address);
  }
  return make_error(ErrorCode::unavailable, "can't listen on " + address + ":" + number + ": " + code.message());
}

}  // namespace

Result<void> listen(tcp::acceptor& acceptor, const std::string& address, std::uint16_t port, ReusePort reuse_port) {
  Code code, ignored;
  const auto ip = asio::ip::make_address(address, code);
  if (code) return make_error(ErrorCode::invalid_argument, "\"" + address + "\" is not an IP address to listen on");
  const tcp::endpoint endpoint(ip, port);
  acceptor.open(endpoint.protocol(), code);
  if (!code) acceptor.set_option(tcp::acceptor::reuse_address(true), code);
  if (!code && reuse_port == ReusePort::yes) {
    using Option = asio::detail::socket_option::boolean<SOL_SOCKET, SO_REUSEPORT>;
    acceptor.set_option(Option(true), code);
  }
  if (!code) acceptor.bind(endpoint, code);
  if (!code) acceptor.listen(asio::socket_base::max_listen_connections, code);
  if (!code) return {};
  acceptor.close(ignored);
  return describe(code, address, port);
}

}  // namespace penstock::async
