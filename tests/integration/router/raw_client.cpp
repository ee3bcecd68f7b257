#include "tests/integration/router/raw_client.hpp"

#include <algorithm>

namespace penstock::test {

using boost::asio::ip::tcp;
using Code = boost::system::error_code;

RawClient::RawClient(Cluster& cluster, int receive_buffer_bytes) : cluster_(cluster), socket_(cluster.io) {
  socket_.open(tcp::v4());
  if (receive_buffer_bytes > 0) {
    socket_.set_option(boost::asio::socket_base::receive_buffer_size(receive_buffer_bytes));
  }
  socket_.connect({boost::asio::ip::address_v4::loopback(), cluster.app->port()});
  socket_.non_blocking(true);
}

bool RawClient::send(std::string_view text) {
  bool is_broken = false;
  cluster_.run_until([&] {
    while (!text.empty()) {
      Code code;
      text.remove_prefix(socket_.write_some(boost::asio::buffer(text.data(), text.size()), code));
      if (code == boost::asio::error::would_block) return false;
      if (code) is_broken = true;
      if (code) return true;
    }
    return true;
  });
  return text.empty() && !is_broken;
}

void RawClient::read_some(std::size_t bytes_max) {
  std::string piece(bytes_max, '\0');
  Code code;
  piece.resize(socket_.read_some(boost::asio::buffer(piece), code));
  received_ += piece;
  if (code && code != boost::asio::error::would_block) is_at_end_ = true;
}

bool RawClient::read_until(std::string_view mark) {
  cluster_.run_until([&] {
    read_some();
    return is_at_end_ || received_.find(mark) != std::string::npos;
  });
  return received_.find(mark) != std::string::npos;
}

bool RawClient::read_to_end() {
  return cluster_.run_until([&] {
    read_some();
    return is_at_end_;
  });
}

void RawClient::shutdown_send() {
  socket_.shutdown(tcp::socket::shutdown_send);
}

std::string raw_post(std::string_view path, std::string_view body, std::string_view more_headers) {
  std::string request = "POST ";
  request += path;
  request += " HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
  request += more_headers;
  if (more_headers.find("content-length") == std::string_view::npos) {
    request += "content-length: " + std::to_string(body.size()) + "\r\n";
  }
  request += "\r\n";
  request += body;
  return request;
}

}  // namespace penstock::test
