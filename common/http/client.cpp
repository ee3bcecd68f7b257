#include "common/http/client.hpp"

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <deque>

#include "common/async/deadline.hpp"
#include "common/async/stream.hpp"
#include "common/http/detail/chunked_body.hpp"

namespace penstock::http {
namespace {

namespace beast_http = boost::beast::http;
using Code = boost::system::error_code;
using Parser = beast_http::response_parser<beast_http::buffer_body>;
constexpr std::size_t piece_bytes_max = 64 << 10;
constexpr auto write_stall_max = std::chrono::seconds(30);

std::string make_head(const ClientRequest& request, const ClientOptions& options) {
  std::string head = request.method + " " + request.target + " HTTP/1.1\r\n";
  if (!request.headers.find("host")) head += "host: " + options.host + ":" + std::to_string(options.port) + "\r\n";
  for (const auto& [name, value] : request.headers) head += name + ": " + value + "\r\n";
  const bool has_body = !request.body.empty() || (request.method != "GET" && request.method != "HEAD");
  if (has_body && !request.headers.find("content-length") && !request.headers.find("transfer-encoding")) {
    head += "content-length: " + std::to_string(request.body.size()) + "\r\n";
  }
  return head + "\r\n";
}

}  // namespace

struct Client::Impl {
  explicit Impl(ClientOptions options_) : options(std::move(options_)) {}

  asio::awaitable<Result<void>> connect() {
    auto connected = co_await async::connect(options.host, options.port, options.connect_timeout, options.tls);
    if (!connected) co_return std::move(connected).error();
    stream.emplace(std::move(*connected));
    co_return Result<void>();
  }

  asio::awaitable<Result<void>> send(const ClientRequest& request) {
    const std::string head = make_head(request, options);
    const std::array<asio::const_buffer, 2> buffers{asio::buffer(head), asio::buffer(request.body)};
    const async::IoResult written = co_await stream->write(buffers, write_stall_max);
    // A server may answer and close before it has read the whole request: then there is an answer to read.
    if (written.error && written.bytes == 0) co_return async::to_error(written.error, "request to " + options.host);
    co_return Result<void>();
  }

  /// Reads until the parser has a whole header.
  asio::awaitable<Result<void>> read_head(TimePoint deadline) {
    while (!parser->is_header_done()) {
      const std::string_view input = stream->input();
      if (!input.empty()) {
        Code code;
        const std::size_t used = parser->put(asio::buffer(input.data(), input.size()), code);
        stream->consume(used);
        if (code && code != beast_http::error::need_more) {
          co_return make_error(ErrorCode::data_loss, "malformed answer: " + code.message());
        }
        if (used > 0) continue;
      }
      const Code failure = co_await stream->fill(deadline - SteadyClock().now());
      if (failure) co_return async::to_error(failure, "answer of " + options.host);
    }
    co_return Result<void>();
  }

  /// Takes from the input what the parser wants of the body; true if that was something.
  Result<bool> parse_body(std::string& out) {
    const std::string_view input = stream->input();
    if (input.empty()) return false;
    if (body_start.is_held(*parser, input)) return false;
    const std::size_t before = out.size();
    // The body is never longer than the input that it is read from, and room costs: it is cleared first.
    const std::size_t room = std::min(input.size(), piece_bytes_max);
    out.resize(before + room);
    auto& body = parser->get().body();
    body.data = out.data() + before;
    body.size = room;
    Code code;
    const std::size_t used = parser->put(asio::buffer(input.data(), input.size()), code);
    out.resize(before + room - body.size);
    stream->consume(used);
    if (code && code != beast_http::error::need_buffer && code != beast_http::error::need_more) {
      return make_error(ErrorCode::data_loss, "malformed answer: " + code.message());
    }
    return used > 0;
  }

  void finish() {
    if (!parser->keep_alive()) stream.reset();
    parser.reset();
  }

  ClientOptions options;
  std::optional<async::Stream> stream;
  std::optional<Parser> parser;
  SseDecoder decoder;
  std::deque<SseEvent> events;
  detail::BodyStart body_start;
  bool body_ended = false;
};

Client::Client(ClientOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
Client::~Client() = default;
Client::Client(Client&&) noexcept = default;
Client& Client::operator=(Client&&) noexcept = default;

void Client::close() {
  impl_->stream.reset();
  impl_->parser.reset();
}

asio::awaitable<Result<Response>> Client::start(ClientRequest request, Duration timeout) {
  Impl& impl = *impl_;
  const TimePoint deadline = SteadyClock().now() + timeout;
  for (int attempt = 0;; ++attempt) {
    const bool reused = impl.stream.has_value();
    if (!reused) {
      auto connected = co_await impl.connect();
      if (!connected) co_return std::move(connected).error();
    }
    impl.parser.emplace();
    impl.body_start = {};
    impl.parser->body_limit(boost::none);
    impl.parser->eager(false);
    impl.parser->skip(request.method == "HEAD");
    impl.decoder = SseDecoder();
    impl.events.clear();
    impl.body_ended = false;
    Result<void> done = co_await impl.send(request);
    if (done) done = co_await impl.read_head(deadline);
    if (done) break;
    const bool nothing_read = impl.stream->input().empty() && !impl.parser->got_some();
    close();
    if (reused && attempt == 0 && nothing_read && done.error().code == ErrorCode::unavailable) continue;
    co_return done.error();
  }
  Response response;
  response.status = static_cast<int>(impl.parser->get().result_int());
  for (const auto& field : impl.parser->get()) response.headers.add(field.name_string(), field.value());
  co_return response;
}

asio::awaitable<Result<std::string>> Client::read(Duration timeout) {
  Impl& impl = *impl_;
  if (!impl.parser) co_return std::string();
  const TimePoint deadline = SteadyClock().now() + timeout;
  std::string piece;
  while (true) {
    if (impl.parser->is_done()) {
      impl.finish();
      co_return piece;
    }
    auto more = impl.parse_body(piece);
    if (!more) {
      close();
      co_return more.error();
    }
    if (!piece.empty()) co_return piece;
    if (*more) continue;
    Code failure = co_await impl.stream->fill(deadline - SteadyClock().now());
    if (!failure) continue;
    if (failure == asio::error::timed_out) co_return async::to_error(failure, "body of " + impl.options.host);
    if (failure == asio::error::eof) impl.parser->put_eof(failure);
    if (failure) {
      close();
      co_return make_error(ErrorCode::data_loss, "the answer ended early: " + failure.message());
    }
  }
}

asio::awaitable<Result<Response>> Client::request(ClientRequest request, Duration timeout) {
  const TimePoint deadline = SteadyClock().now() + timeout;
  auto response = co_await start(std::move(request), timeout);
  if (!response) co_return response;
  while (impl_->parser) {
    auto piece = co_await read(deadline - SteadyClock().now());
    if (!piece) {
      close();
      co_return piece.error();
    }
    response->body += *piece;
    if (response->body.size() > impl_->options.response_bytes_max) {
      close();
      co_return make_error(ErrorCode::resource_exhausted, "the answer is too large");
    }
  }
  co_return response;
}

asio::awaitable<Result<std::optional<SseEvent>>> Client::next_event(Duration timeout) {
  Impl& impl = *impl_;
  const TimePoint deadline = SteadyClock().now() + timeout;
  while (impl.events.empty()) {
    if (impl.body_ended) co_return std::optional<SseEvent>();
    auto piece = co_await read(deadline - SteadyClock().now());
    if (!piece) co_return piece.error();
    impl.body_ended = !impl.parser.has_value();
    std::vector<SseEvent> events;
    if (auto fed = impl.decoder.feed(*piece, events); !fed) co_return fed.error();
    impl.events.insert(impl.events.end(), events.begin(), events.end());
  }
  std::optional<SseEvent> event = std::move(impl.events.front());
  impl.events.pop_front();
  co_return event;
}

}  // namespace penstock::http
