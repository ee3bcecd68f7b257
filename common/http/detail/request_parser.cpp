#include "common/http/detail/request_parser.hpp"

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cctype>

#include "common/base/check.hpp"
#include "common/http/detail/chunked_body.hpp"
#include "common/http/detail/head_check.hpp"

namespace penstock::http::detail {
namespace {

namespace beast_http = boost::beast::http;
using Code = boost::system::error_code;
constexpr std::size_t chunk_line_bytes_max = 8 << 10;  // a chunk header with its extensions, or the trailers

/// Splits and decodes the target. Absolute-form targets have been checked against Host.
std::optional<ApiError> set_target(std::string_view target, Request& request) {
  const std::size_t scheme = target.find("://");
  if (!target.starts_with('/') && scheme != std::string_view::npos) {
    target.remove_prefix(std::min(target.find('/', scheme + 3), target.size()));
  }
  const std::size_t mark = std::min(target.find('?'), target.size());
  request.query = target.substr(std::min(mark + 1, target.size()));
  auto path = percent_decode(target.substr(0, mark));
  if (!path || path->find('\0') != std::string::npos) return protocol_error(400, "malformed request target");
  request.path = std::move(*path);
  return std::nullopt;
}

/// A chunk header whose line is complete, of a chunk that is not the last. Beast looks for the end of a quoted
/// extension beyond it.
bool is_whole_chunk_header(std::string_view input) {
  if (input.starts_with("\r\n")) input.remove_prefix(2);
  const std::size_t digit = input.find_first_not_of('0');
  return digit != input.npos && std::isxdigit(static_cast<unsigned char>(input[digit])) != 0 &&
         input.find("\r\n") != input.npos;
}

}  // namespace

struct RequestParser::Impl {
  explicit Impl(const ServerLimits& limits_) : limits(limits_), scanner(limits_) {
    parser.eager(false);
    parser.header_limit(static_cast<std::uint32_t>(limits.request_line_bytes_max + limits.header_bytes_max));
    parser.body_limit(limits.body_bytes_max);
  }

  Progress fail(ApiError reason) {
    error = std::move(reason);
    return Progress::failed;
  }

  Progress fail(const Code& code) {
    if (code == beast_http::error::body_limit) {
      return fail(protocol_error(413, "the body is larger than " + std::to_string(limits.body_bytes_max) + " bytes"));
    }
    return fail(protocol_error(400, "malformed request: " + code.message()));
  }

  Progress feed_head(std::string_view input, std::size_t& consumed) {
    const std::size_t size = scanner.scan(input);
    if (scanner.error()) return fail(*scanner.error());
    if (size == 0) return Progress::need_more;
    if (auto reason = check_head(input.substr(0, size), limits, facts)) return fail(*reason);
    Code code;
    consumed = parser.put(boost::asio::buffer(input.data(), size), code);
    if (code) return fail(code);
    PENSTOCK_CHECK(parser.is_header_done() && consumed == size);
    auto& message = parser.get();
    request.method = message.method_string();
    if (auto reason = set_target(message.target(), request)) return fail(*reason);
    for (const auto& field : message) {
      // Names with an underscore are dropped: proxies in front may have read them as another name.
      if (field.name_string().find('_') == std::string_view::npos)
        request.headers.add(field.name_string(), field.value());
    }
    head_done = true;
    return parser.is_done() ? Progress::complete : Progress::head_done;
  }

  Progress feed_body(std::string_view input, std::size_t& consumed) {
    if (body_start.is_held(parser, input)) return Progress::need_more;
    while (!parser.is_done() && consumed < input.size()) {
      Code code;
      const std::size_t used = parser.put(boost::asio::buffer(input.data() + consumed, input.size() - consumed), code);
      consumed += used;
      if (code && code != beast_http::error::need_more) return fail(code);
      if (used > 0) continue;
      if (parser.chunked() && is_whole_chunk_header(input.substr(consumed))) {
        return fail(protocol_error(400, "malformed request: a quote without an end in a chunk header"));
      }
      break;
    }
    if (parser.is_done()) return Progress::complete;
    if (input.size() - consumed > chunk_line_bytes_max) return fail(protocol_error(400, "a chunk header is too long"));
    return Progress::need_more;
  }

  const ServerLimits& limits;
  HeadScanner scanner;
  HeadFacts facts;
  beast_http::request_parser<beast_http::string_body> parser;
  Request request;
  ApiError error;
  bool head_done = false;
  BodyStart body_start;
};

RequestParser::RequestParser(const ServerLimits& limits) : impl_(std::make_unique<Impl>(limits)) {}
RequestParser::~RequestParser() = default;

Progress RequestParser::feed(std::string_view input, std::size_t& consumed) {
  consumed = 0;
  return impl_->head_done ? impl_->feed_body(input, consumed) : impl_->feed_head(input, consumed);
}

bool RequestParser::head_done() const {
  return impl_->head_done;
}
bool RequestParser::expects_continue() const {
  return impl_->facts.expects_continue;
}
bool RequestParser::keep_alive() const {
  return impl_->parser.keep_alive();
}
bool RequestParser::http_1_0() const {
  return impl_->facts.http_1_0;
}
std::size_t RequestParser::body_bytes() const {
  return impl_->parser.get().body().size();
}
const ApiError& RequestParser::error() const {
  return impl_->error;
}

Request RequestParser::take() {
  impl_->request.body = std::move(impl_->parser.get().body());
  return std::move(impl_->request);
}

}  // namespace penstock::http::detail
