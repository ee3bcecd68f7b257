#include "tests/integration/agent/files_server.hpp"

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace penstock::ctl {

FilesServer::FilesServer(boost::asio::io_context& io)
    : server_(std::make_unique<http::Server>(
          io.get_executor(), http::ServerOptions{},
          [this](http::Request request, http::ResponseWriter& writer) { return serve(std::move(request), writer); },
          log::Logger())) {
  port_ = server_->listen("127.0.0.1", 0).value();
}
FilesServer::~FilesServer() = default;

std::string FilesServer::url(const std::string& path) const {
  return "http://127.0.0.1:" + std::to_string(port_) + path;
}

std::vector<std::string> FilesServer::ranges_of(const std::string& path) const {
  std::vector<std::string> out;
  for (const auto& request : seen) {
    if (request.path == path) out.emplace_back(request.headers.find("range").value_or(""));
  }
  return out;
}

boost::asio::awaitable<void> FilesServer::serve(http::Request request, http::ResponseWriter& writer) {
  seen.push_back(request);
  WebFault fault;
  if (auto& queue = faults[request.path]; !queue.empty()) {
    fault = queue.front();
    queue.pop_front();
  }
  const auto found = files.find(request.path);
  http::Headers headers;
  int status = fault.status != 0 ? fault.status : found == files.end() ? 404 : 200;
  std::string body = status == 200 ? found->second : std::string("no");
  if (fault.redirect_to) {
    status = 302;
    body.clear();
    headers.add("location", *fault.redirect_to);
  }
  const std::string range(request.headers.find("range").value_or(""));
  if (status == 200 && range.starts_with("bytes=") && !fault.ignores_range) {
    const std::size_t from = std::stoul(range.substr(6));
    const std::string total = std::to_string(body.size());
    status = from < body.size() ? 206 : 416;
    headers.add("content-range", "bytes " + std::to_string(from) + "-" + std::to_string(body.size() - 1) + "/" + total);
    body = status == 206 ? body.substr(from) : std::string();
  }
  if (!fault.cut_after) {
    http::Response response(status, std::move(headers), std::move(body));
    (void)co_await writer.send(std::move(response));
    co_return;
  }
  writer.begin_stream(status, headers);
  const std::string part = body.substr(0, *fault.cut_after);
  (void)co_await writer.write(part);
  writer.fail();
}

TemporaryFolder::TemporaryFolder() {
  std::string pattern = "/tmp/penstock-agent-XXXXXX";
  if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp");
  path_ = pattern;
}
TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}
std::string TemporaryFolder::read(const std::string& name) const {
  std::ifstream file(path_ / name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}
void TemporaryFolder::write(const std::string& name, const std::string& text) const {
  std::filesystem::create_directories((path_ / name).parent_path());
  std::ofstream(path_ / name, std::ios::binary) << text;
}

}  // namespace penstock::ctl
