// The parts of common/http without sockets: messages, server-sent events, and the request parser with every shape that
// two readers may understand differently.
#include <gtest/gtest.h>

#include "common/http/detail/request_parser.hpp"
#include "common/http/message.hpp"
#include "common/http/sse.hpp"
#include "common/json/json.hpp"
#include "common/time/random.hpp"

namespace penstock::http {
namespace {

using detail::Progress;
using detail::RequestParser;

struct Parsed {
  int status = 0;  // 0: still waiting, 200: complete, else the refusal
  Request request;
  std::string rest;
};

/// Feeds `text` in pieces of `piece` bytes.
Parsed parse(std::string_view text, const ServerLimits& limits = {}, std::size_t piece = 1 << 20) {
  RequestParser parser(limits);
  std::string buffered;
  Parsed parsed;
  while (!text.empty()) {
    buffered += text.substr(0, piece);
    text.remove_prefix(std::min(piece, text.size()));
    while (true) {
      std::size_t consumed = 0;
      const Progress progress = parser.feed(buffered, consumed);
      buffered.erase(0, consumed);
      if (progress == Progress::failed) {
        parsed.status = parser.error().status;
        return parsed;
      }
      if (progress == Progress::complete) {
        parsed.status = 200;
        parsed.request = parser.take();
        parsed.rest = buffered + std::string(text);
        return parsed;
      }
      if (progress == Progress::need_more) break;
    }
  }
  return parsed;
}

int status_of(std::string_view text, const ServerLimits& limits = {}) {
  return parse(text, limits).status;
}
std::string post(std::string_view fields, std::string_view body = "") {
  return "POST /v1 HTTP/1.1\r\nHost: a\r\n" + std::string(fields) + "\r\n" + std::string(body);
}
std::string get(std::string_view fields) {
  return "GET / HTTP/1.1\r\nHost: a\r\n" + std::string(fields) + "\r\n";
}

TEST(RequestParser, ReadsARequest) {
  const Parsed parsed =
      parse("POST /v1/a%20b?x=1&y=%41 HTTP/1.1\r\nHost: a:80\r\nX-A:  one \r\ncontent-length: 3\r\n\r\nabcGET");
  ASSERT_EQ(parsed.status, 200);
  EXPECT_EQ(parsed.request.method, "POST");
  EXPECT_EQ(parsed.request.path, "/v1/a b");
  EXPECT_EQ(parsed.request.query, "x=1&y=%41");
  EXPECT_EQ(parsed.request.headers.find("x-a"), "one");
  EXPECT_EQ(parsed.request.body, "abc");
  EXPECT_EQ(parsed.rest, "GET");
}

TEST(RequestParser, CutsMakeNoDifference) {
  const std::string text =
      post("Transfer-Encoding: Chunked\r\n", "5;ext=\"a\"\r\nhello\r\n1\r\n!\r\n0\r\nTrailer: x\r\n\r\n");
  for (std::size_t piece = 1; piece <= text.size(); ++piece) {
    const Parsed parsed = parse(text, {}, piece);
    ASSERT_EQ(parsed.status, 200) << piece;
    EXPECT_EQ(parsed.request.body, "hello!");
    EXPECT_FALSE(parsed.request.headers.find("trailer"));
  }
}

TEST(RequestParser, AnEmptyChunkedBodyMayComeByteByByte) {
  for (std::string_view body : {"0\r\n\r\n", "000\r\n\r\n", "0;a\r\n\r\n", "0\r\nTrailer: x\r\n\r\n"}) {
    const std::string text = post("Transfer-Encoding: chunked\r\n", body);
    for (std::size_t piece = 1; piece <= text.size(); ++piece) {
      const Parsed parsed = parse(text + "GET", {}, piece);
      ASSERT_EQ(parsed.status, 200) << body << " in pieces of " << piece;
      EXPECT_EQ(parsed.request.body, "");
      EXPECT_EQ(parsed.rest, "GET");
    }
  }
}

TEST(RequestParser, EveryPrefixOfAGoodRequestWaits) {
  const std::string text = post("Content-Length: 2\r\n", "ab");
  for (std::size_t size = 0; size < text.size(); ++size) EXPECT_EQ(status_of(text.substr(0, size)), 0) << size;
}

TEST(RequestParser, RefusesAmbiguousFraming) {
  EXPECT_EQ(status_of(post("Content-Length: 1\r\nContent-Length: 1\r\n", "a")), 400);
  EXPECT_EQ(status_of(post("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n")), 400);
  EXPECT_EQ(status_of(post("Transfer-Encoding: chunked\r\nContent-Length: 1\r\n", "0\r\n\r\n")), 400);
  EXPECT_EQ(status_of(post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n")), 400);
  EXPECT_EQ(status_of("POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 400);
  for (std::string_view length : {"+5", "-0", "-1", "0x5", "5_0", "5 5", "5,5", "00", "05", "", "\x0B5"}) {
    EXPECT_EQ(status_of(post("Content-Length: " + std::string(length) + "\r\n", "abcde")), 400) << length;
  }
  for (std::string_view length : {"9223372036854775808", "18446744073709551621", "99999999999999999999999"}) {
    EXPECT_EQ(status_of(post("Content-Length: " + std::string(length) + "\r\n", "abcde")), 413) << length;
  }
  for (std::string_view coding :
       {"identity", "xchunked", "chunked, gzip", ", chunked", "chunked,", "\"chunked\"", ""}) {
    EXPECT_EQ(status_of(post("Transfer-Encoding: " + std::string(coding) + "\r\n", "0\r\n\r\n")), 501) << coding;
  }
  EXPECT_EQ(status_of(post("Transfer-Encoding:\x0B chunked\r\n", "0\r\n\r\n")), 400);
  EXPECT_EQ(status_of(post("Content_Length: 5\r\nContent-Length: 1\r\n", "a")), 400);
  EXPECT_EQ(status_of(post("")), 411);
}

TEST(RequestParser, RefusesBadChunks) {
  for (std::string_view body :
       {"0x5\r\nhello\r\n0\r\n\r\n", "+5\r\nhello\r\n0\r\n\r\n", "-5\r\nhello\r\n0\r\n\r\n", "5_0\r\nhello\r\n",
        " 5\r\nhello\r\n", "5 \r\nhello\r\n0\r\n\r\n", "\r\nhello\r\n", "11111111111111111\r\nhello",
        "5\r\nhelloXX0\r\n\r\n", "5\r\nhello\n0\r\n\r\n", "5\nhello\r\n0\r\n\r\n", "5;a\x01\r\nhello\r\n0\r\n\r\n",
        "g\r\nhello\r\n", "5;a\nb\r\nhello\r\n0\r\n\r\n"}) {
    const int status = status_of(post("Transfer-Encoding: chunked\r\n", body));
    EXPECT_TRUE(status == 400 || status == 413) << status << " for " << body;
  }
  EXPECT_EQ(status_of(post("Transfer-Encoding: chunked\r\n", "5;" + std::string(64 << 10, 'a'))), 400);
  const std::string open_quote = post("Transfer-Encoding: chunked\r\n", "5;a=\"b\r\nhello\r\n0\r\n\r\n");
  for (std::size_t piece = 1; piece <= open_quote.size(); ++piece) {
    EXPECT_EQ(parse(open_quote, {.body_bytes_max = 8}, piece).status, 400) << piece;
  }
}

TEST(RequestParser, RefusesMalformedHeads) {
  for (std::string_view text : {"GET / HTTP/1.1\nHost: a\r\n\r\n",
                                "GET / HTTP/1.1\r\nHost: a\n\r\n",
                                "GET / HTTP/1.1\r\nHost: a\r\n\n",
                                "GET / HTTP/1.1\rHost: a\r\n\r\n",
                                "GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n",
                                "GET / HTTP/1.1\r\nHost : a\r\n\r\n",
                                "GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n",
                                "GET / HTTP/1.1\r\n Host: a\r\n\r\n",
                                "GET / HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n",
                                "GET / HTTP/1.1\r\nHost: a\r\nnothing\r\n\r\n",
                                "GET / HTTP/1.1\r\n\r\n",
                                "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
                                "GET / HTTP/1.1\r\nHost: \r\n\r\n",
                                "GET / HTTP/1.1\r\nHost: u@a\r\n\r\n",
                                "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
                                "GET / HTTP/1.1\r\nHost: a, b\r\n\r\n",
                                "GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n",
                                "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
                                "GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
                                "GET /a b HTTP/1.1\r\nHost: a\r\n\r\n",
                                "GET / http/1.1\r\nHost: a\r\n\r\n",
                                "GET / HTTP/1\r\nHost: a\r\n\r\n",
                                "GET /\r\n\r\n",
                                "GET a HTTP/1.1\r\nHost: a\r\n\r\n",
                                "GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n",
                                "GET /%00 HTTP/1.1\r\nHost: a\r\n\r\n",
                                "GET /# HTTP/1.1\r\nHost: a\r\n\r\n",
                                "GET /\xC3\xA9 HTTP/1.1\r\nHost: a\r\n\r\n",
                                "G(T / HTTP/1.1\r\nHost: a\r\n\r\n",
                                "GET / HTTP/1.1\r\nHost: a\r\nX\xA0: a\r\n\r\n",
                                "\x16\x03\x01\x02"}) {
    EXPECT_EQ(status_of(text), 400) << text;
  }
  EXPECT_EQ(status_of(std::string_view("GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n", 28)), 400);
  EXPECT_EQ(status_of(get(std::string("X: a\0b\r\n", 8))), 400);
}

TEST(RequestParser, NamesWhatItDoesNotSpeak) {
  EXPECT_EQ(status_of("GET / HTTP/2.0\r\nHost: a\r\n\r\n"), 505);
  EXPECT_EQ(status_of("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 505);
  EXPECT_EQ(status_of("BREW / HTTP/1.1\r\nHost: a\r\n\r\n"), 501);
  EXPECT_EQ(status_of("get / HTTP/1.1\r\nHost: a\r\n\r\n"), 501);
  EXPECT_EQ(status_of("TRACE / HTTP/1.1\r\nHost: a\r\n\r\n"), 405);
  EXPECT_EQ(status_of("CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n"), 405);
  EXPECT_EQ(status_of(get("Expect: magic\r\n")), 417);
  EXPECT_EQ(status_of(post("Content-Encoding: gzip\r\nContent-Length: 1\r\n", "a")), 415);
}

TEST(RequestParser, StopsAtTheLimitsAsSoonAsTheyArePassed) {
  EXPECT_EQ(status_of("GET /" + std::string(9 << 10, 'a')), 414);
  EXPECT_EQ(status_of(get("X: ").substr(0, get("").size() + 1) + std::string(41 << 10, 'a')), 431);
  std::string many;
  for (int i = 0; i < 101; ++i) many += "X" + std::to_string(i) + ": a\r\n";
  EXPECT_EQ(status_of(get(many)), 431);
  EXPECT_EQ(status_of(post("Content-Length: 11\r\n"), {.body_bytes_max = 10}), 413);
  EXPECT_EQ(status_of(post("Transfer-Encoding: chunked\r\n", "6\r\nhello!\r\n6\r\n"), {.body_bytes_max = 10}), 413);
  EXPECT_EQ(status_of(post("Content-Length: 10\r\n", "0123456789"), {.body_bytes_max = 10}), 200);
}

TEST(RequestParser, DropsNamesWithAnUnderscore) {
  const Parsed parsed = parse(get("X_Tenant: a\r\nX-Other: b\r\n"));
  ASSERT_EQ(parsed.status, 200);
  EXPECT_FALSE(parsed.request.headers.find("x_tenant"));
  EXPECT_TRUE(parsed.request.headers.find("x-other"));
}

TEST(RequestParser, AbsoluteTargetsOfTheSameHostAreServed) {
  EXPECT_EQ(parse("GET http://a/x?y HTTP/1.1\r\nHost: A\r\n\r\n").request.path, "/x");
  EXPECT_EQ(parse("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n").request.path, "*");
}

TEST(RequestParser, AMegabyteOfTinyChunksIsRead) {
  std::string body, expected;
  for (int i = 0; i < 100'000; ++i) {
    body += "1\r\na\r\n";
    expected += 'a';
  }
  const Parsed parsed = parse(post("Transfer-Encoding: chunked\r\n", body + "0\r\n\r\n"));
  EXPECT_EQ(parsed.status, 200);
  EXPECT_EQ(parsed.request.body, expected);
}

TEST(RequestParser, RandomBytesNeverCrash) {
  Random random(20260131);
  const std::string good = post("Transfer-Encoding: chunked\r\nX: y\r\n", "5\r\nhello\r\n0\r\n\r\n");
  for (int round = 0; round < 20'000; ++round) {
    std::string text = good;
    for (std::uint64_t i = random.below(4); i < 4; ++i)
      text[random.below(text.size())] = static_cast<char>(random.below(256));
    const int status = parse(text, {}, 1 + random.below(40)).status;
    EXPECT_TRUE(status == 0 || status == 200 || status >= 400);
  }
}

TEST(HttpMessage, ErrorsHaveTheShapeOfOpenAi) {
  ApiError error;
  error.message = "bad \"n\"";
  error.param = "n";
  EXPECT_EQ(to_json(error),
            R"({"error":{"message":"bad \"n\"","type":"invalid_request_error","param":"n","code":null}})");
  error.status = 429;
  error.should_retry = true;
  error.retry_after_s = 3;
  const Response response = to_response(error);
  EXPECT_EQ(response.headers.find("Retry-After"), "3");
  EXPECT_FALSE(response.headers.find("x-should-retry"));
}

TEST(HttpMessage, QueryParametersAreDecoded) {
  EXPECT_EQ(query_parameter("a=1&b=x%20y+z&c", "b"), "x y z");
  EXPECT_EQ(query_parameter("a=1&b=x&c", "c"), "");
  EXPECT_EQ(query_parameter("a=1", "b"), std::nullopt);
  EXPECT_EQ(query_parameter("a=%zz", "a"), std::nullopt);
}

std::vector<SseEvent> decode(std::string_view text, std::size_t piece) {
  SseDecoder decoder;
  std::vector<SseEvent> events;
  while (!text.empty()) {
    EXPECT_TRUE(decoder.feed(text.substr(0, piece), events));
    text.remove_prefix(std::min(piece, text.size()));
  }
  return events;
}

TEST(Sse, SplitsAndLineEndsMakeNoDifference) {
  const std::string text =
      "\xEF\xBB\xBF: hello\r\n\r\ndata: a\rdata:b\r\ndata\n\nevent: x\nid: 7\ndata:  c\n\nretry: 1\n\nno\n\ndata: "
      "[DONE]\n\ndata: open";
  const std::vector<SseEvent> expected{{"", "a\nb\n", ""}, {"x", " c", "7"}, {"", "[DONE]", "7"}};
  for (std::size_t piece = 1; piece <= text.size(); ++piece) EXPECT_EQ(decode(text, piece), expected) << piece;
}

TEST(Sse, WhatIsEncodedIsDecoded) {
  for (std::string_view data : {"", "a", "a\n\nb", "\n", "a\n", "data: x", ":c", " lead", "\xE2\x80\xA8"}) {
    std::string text;
    append_sse_comment(text, "ping\npong");
    append_sse_event(text, data, "e");
    for (std::size_t piece : {std::size_t{1}, std::size_t{3}, text.size()}) {
      EXPECT_EQ(decode(text, piece), (std::vector<SseEvent>{{"e", std::string(data), ""}})) << data;
    }
  }
}

TEST(Sse, EndlessLinesAreRefused) {
  SseDecoder decoder(100);
  std::vector<SseEvent> events;
  EXPECT_TRUE(decoder.feed("data: " + std::string(90, 'x'), events));
  EXPECT_EQ(decoder.feed(std::string(90, 'x'), events).error().code, ErrorCode::resource_exhausted);
  EXPECT_FALSE(decoder.feed("\n\n", events));
  EXPECT_TRUE(events.empty());
}

}  // namespace
}  // namespace penstock::http
