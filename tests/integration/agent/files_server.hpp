// A web server of files on loopback, with faults: answers that end early, ranges that are ignored, bytes that are
// wrong, refusals, redirects. In the io_context of the test, or of a thread. One thread.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <cstddef>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/http/server.hpp"

namespace penstock::ctl {

/// One answer's fault, used up by it.
struct WebFault {
  int status = 0;                          // refuses with it
  std::optional<std::size_t> cut_after;    // bytes of the body, then the connection ends
  std::optional<std::string> redirect_to;  // a location
  bool ignores_range = false;
};

class FilesServer {
 public:
  explicit FilesServer(boost::asio::io_context& io);
  ~FilesServer();

  std::map<std::string, std::string> files;            // by path
  std::map<std::string, std::deque<WebFault>> faults;  // by path
  std::vector<http::Request> seen;

  std::string url(const std::string& path) const;
  std::vector<std::string> ranges_of(const std::string& path) const;

 private:
  boost::asio::awaitable<void> serve(http::Request request, http::ResponseWriter& writer);

  std::unique_ptr<http::Server> server_;
  std::uint16_t port_ = 0;
};

/// A folder below /tmp that goes with this object.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::string path() const { return path_.string(); }
  std::string read(const std::string& name) const;
  void write(const std::string& name, const std::string& text) const;
  bool has(const std::string& name) const { return std::filesystem::exists(path_ / name); }

 private:
  std::filesystem::path path_;
};

}  // namespace penstock::ctl
