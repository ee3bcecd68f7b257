#include "common/http/message.hpp"

#include <algorithm>

#include "common/json/openai_error.hpp"

namespace penstock::http {
namespace {

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  c = lower(c);
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

}  // namespace

bool equal_names(std::string_view a, std::string_view b) {
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(), [](char x, char y) { return lower(x) == lower(y); });
}

Headers::Headers(std::initializer_list<std::pair<std::string_view, std::string_view>> fields) {
  for (const auto& [name, value] : fields) add(name, value);
}

void Headers::add(std::string_view name, std::string_view value) {
  fields_.emplace_back(name, value);
}

void Headers::set(std::string_view name, std::string_view value) {
  std::erase_if(fields_, [&](const auto& field) { return equal_names(field.first, name); });
  add(name, value);
}

std::optional<std::string_view> Headers::find(std::string_view name) const {
  for (const auto& field : fields_) {
    if (equal_names(field.first, name)) return field.second;
  }
  return std::nullopt;
}

std::string_view reason_phrase(int status) {
  switch (status) {
    case 100:
      return "Continue";
    case 200:
      return "OK";
    case 201:
      return "Created";
    case 202:
      return "Accepted";
    case 204:
      return "No Content";
    case 304:
      return "Not Modified";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 411:
      return "Length Required";
    case 413:
      return "Content Too Large";
    case 414:
      return "URI Too Long";
    case 415:
      return "Unsupported Media Type";
    case 417:
      return "Expectation Failed";
    case 422:
      return "Unprocessable Content";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 499:
      return "Client Closed Request";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 502:
      return "Bad Gateway";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Status";
  }
}

std::optional<std::string> percent_decode(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    if (i + 2 >= text.size()) return std::nullopt;
    const int high = hex_digit(text[i + 1]), low = hex_digit(text[i + 2]);
    if (high < 0 || low < 0) return std::nullopt;
    out += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return out;
}

std::optional<std::string> query_parameter(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const std::string_view item = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), item.size() + 1));
    const std::size_t equals = item.find('=');
    if (percent_decode(item.substr(0, equals)) != std::string(name)) continue;
    std::string value(equals == std::string_view::npos ? std::string_view() : item.substr(equals + 1));
    std::replace(value.begin(), value.end(), '+', ' ');
    return percent_decode(value);
  }
  return std::nullopt;
}

Response json_response(int status, std::string body) {
  return {status, {{"content-type", "application/json"}}, std::move(body)};
}
Response text_response(int status, std::string body) {
  return {status, {{"content-type", "text/plain; charset=utf-8"}}, std::move(body)};
}

std::string to_json(const ApiError& error) {
  const json::OpenAiError text{error.message, error.type, error.param, error.code};
  return json::to_text(text);
}

Response to_response(const ApiError& error) {
  Response response = json_response(error.status, to_json(error));
  if (error.retry_after_s) response.headers.add("retry-after", std::to_string(*error.retry_after_s));
  if (!error.should_retry) response.headers.add("x-should-retry", "false");
  return response;
}

}  // namespace penstock::http
