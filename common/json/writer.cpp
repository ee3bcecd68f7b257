#include "common/json/writer.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "common/base/check.hpp"

namespace penstock::json {
namespace {

/// Bytes that can't be copied as they are: controls, quote, backslash, and everything that isn't ASCII (which is
/// copied after a look at its sequence).
constexpr std::array<bool, 256> make_special() {
  std::array<bool, 256> special{};
  for (unsigned byte = 0; byte < 256; ++byte)
    special[byte] = byte < 0x20 || byte == '"' || byte == '\\' || byte >= 0x7F;
  return special;
}
constexpr std::array<bool, 256> special = make_special();

/// Whether any of the eight bytes may be special: never false for one that is. A byte-wise test in one word (borrows
/// only make neighbours of a special byte look special too).
bool has_special(std::uint64_t bytes) {
  constexpr std::uint64_t ones = 0x0101010101010101, highs = 0x8080808080808080;
  const auto zero_byte = [](std::uint64_t word) { return (word - ones) & ~word & highs; };
  const std::uint64_t below_space = (bytes - ones * 0x20) & ~bytes & highs;
  return (below_space | zero_byte(bytes ^ (ones * '"')) | zero_byte(bytes ^ (ones * '\\')) |
          zero_byte(bytes ^ (ones * 0x7F)) | (bytes & highs)) != 0;
}

/// Index of the first special byte at or after `at`, or the end. Long plain text is skipped eight bytes at a time.
std::size_t find_special(std::string_view text, std::size_t at) {
  while (at + 8 <= text.size()) {
    std::uint64_t bytes;
    std::memcpy(&bytes, text.data() + at, sizeof bytes);
    if (has_special(bytes)) break;
    at += 8;
  }
  while (at < text.size() && !special[static_cast<unsigned char>(text[at])]) ++at;
  return at;
}

/// Length of the well-formed UTF-8 sequence at the start of `text`, 0 if there is none.
std::size_t sequence_size(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto continues = [&](std::size_t i) { return i < text.size() && (byte(i) & 0xC0) == 0x80; };
  const unsigned char lead = byte(0);
  if (lead >= 0xC2 && lead <= 0xDF) return continues(1) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    if (!continues(1) || !continues(2)) return 0;
    if (lead == 0xE0 && byte(1) < 0xA0) return 0;   // overlong
    if (lead == 0xED && byte(1) >= 0xA0) return 0;  // surrogates
    return 3;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    if (!continues(1) || !continues(2) || !continues(3)) return 0;
    if (lead == 0xF0 && byte(1) < 0x90) return 0;  // overlong
    if (lead == 0xF4 && byte(1) > 0x8F) return 0;  // over U+10FFFF
    return 4;
  }
  return 0;
}

void append_control(std::string& out, unsigned char byte) {
  constexpr std::string_view digits = "0123456789abcdef";
  out += "\\u00";
  out += digits[byte >> 4];
  out += digits[byte & 15];
}

/// Appends the escaped form of what starts at text[0], which is special; returns how many bytes it took.
std::size_t append_special(std::string& out, std::string_view text) {
  const auto byte = static_cast<unsigned char>(text[0]);
  if (byte < 0x80) {
    switch (byte) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        append_control(out, byte);
    }
    return 1;
  }
  const std::size_t size = sequence_size(text);
  if (size == 0) {
    out += "\xEF\xBF\xBD";
    return 1;
  }
  const std::string_view sequence = text.substr(0, size);
  if (sequence == "\xE2\x80\xA8") {
    out += "\\u2028";
  } else if (sequence == "\xE2\x80\xA9") {
    out += "\\u2029";
  } else {
    out += sequence;
  }
  return size;
}

}  // namespace

void append_escaped(std::string& out, std::string_view text) {
  std::size_t plain = 0;
  while (plain < text.size()) {
    const std::size_t end = find_special(text, plain);
    out.append(text, plain, end - plain);
    plain = end;
    if (plain < text.size()) plain += append_special(out, text.substr(plain));
  }
}

void append_quoted(std::string& out, std::string_view text) {
  out += '"';
  append_escaped(out, text);
  out += '"';
}

namespace {
template <class T>
void append_any(std::string& out, T number) {
  char text[32];
  auto [end, error] = std::to_chars(text, text + sizeof text, number);
  out.append(text, static_cast<std::size_t>(end - text));
}
}  // namespace

void append_number(std::string& out, std::int64_t number) {
  append_any(out, number);
}
void append_number(std::string& out, std::uint64_t number) {
  append_any(out, number);
}
void append_number(std::string& out, double number) {
  if (std::isfinite(number)) {
    append_any(out, number);
  } else {
    out += "null";
  }
}

void Writer::separate() {
  if (after_key_) {
    after_key_ = false;
    return;
  }
  const std::uint64_t bit = std::uint64_t{1} << depth_;
  if ((has_items_ & bit) != 0 && depth_ > 0) out_ += ',';
  has_items_ |= bit;
}

void Writer::begin_object() {
  separate();
  PENSTOCK_CHECK(depth_ < 63);
  out_ += '{';
  has_items_ &= ~(std::uint64_t{1} << ++depth_);
}
void Writer::begin_array() {
  separate();
  PENSTOCK_CHECK(depth_ < 63);
  out_ += '[';
  has_items_ &= ~(std::uint64_t{1} << ++depth_);
}
void Writer::end_object() {
  out_ += '}';
  --depth_;
}
void Writer::end_array() {
  out_ += ']';
  --depth_;
}
void Writer::key(std::string_view name) {
  separate();
  append_quoted(out_, name);
  out_ += ':';
  after_key_ = true;
}
void Writer::value(std::string_view text) {
  separate();
  append_quoted(out_, text);
}
void Writer::value(bool flag) {
  raw(flag ? "true" : "false");
}
void Writer::value(double number) {
  separate();
  append_number(out_, number);
}
void Writer::value(std::int64_t number) {
  separate();
  append_number(out_, number);
}
void Writer::value(std::uint64_t number) {
  separate();
  append_number(out_, number);
}
void Writer::value(std::nullptr_t) {
  raw("null");
}
void Writer::raw(std::string_view json) {
  separate();
  out_ += json;
}

}  // namespace penstock::json
