#include "common/kube/model/quantity.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

namespace penstock::kube {
namespace {

constexpr Int128 nano = 1'000'000'000;
constexpr Int128 units_max = std::numeric_limits<std::int64_t>::max();
constexpr Int128 nanounits_max = units_max * nano;
constexpr std::size_t text_bytes_max = 64;

struct Suffix {
  std::string_view text;
  Int128 nanounits;  // of one
};
constexpr Int128 shifted(int bits) {
  return (Int128{1} << bits) * nano;
}
constexpr std::array<Suffix, 6> binary_suffixes{{{"Ei", shifted(60)},
                                                 {"Pi", shifted(50)},
                                                 {"Ti", shifted(40)},
                                                 {"Gi", shifted(30)},
                                                 {"Mi", shifted(20)},
                                                 {"Ki", shifted(10)}}};
constexpr std::array<Suffix, 10> decimal_suffixes{{{"E", nano * 1'000'000'000'000'000'000},
                                                   {"P", nano * 1'000'000'000'000'000},
                                                   {"T", nano * 1'000'000'000'000},
                                                   {"G", nano * 1'000'000'000},
                                                   {"M", nano * 1'000'000},
                                                   {"k", nano * 1'000},
                                                   {"", nano},
                                                   {"m", nano / 1'000},
                                                   {"u", nano / 1'000'000},
                                                   {"n", 1}}};

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

/// The number before the suffix: its digits without the point, and how many of them follow the point.
struct Decimal {
  Int128 digits = 0;
  int fraction = 0;
};

std::optional<Decimal> take_decimal(std::string_view& text) {
  Decimal number;
  bool any = false, after_point = false, inexact = false;
  constexpr Int128 digits_max = nanounits_max;
  for (; !text.empty(); text.remove_prefix(1)) {
    if (text[0] == '.' && !after_point) {
      after_point = true;
    } else if (is_digit(text[0])) {
      any = true;
      if (number.digits > digits_max) {
        if (!after_point) return std::nullopt;  // far beyond any quantity
        inexact = inexact || text[0] != '0';
        continue;
      }
      number.digits = number.digits * 10 + (text[0] - '0');
      number.fraction += after_point ? 1 : 0;
    } else {
      break;
    }
  }
  if (!any) return std::nullopt;
  if (inexact) ++number.digits;
  return number;
}

/// digits * unit / 10^fraction, rounded up; nothing if too large.
std::optional<Int128> scale(Decimal number, Int128 unit) {
  // Powers of ten cancel first, so that the product stays within 128 bits.
  while (number.fraction > 0 && unit % 10 == 0) {
    unit /= 10;
    --number.fraction;
  }
  Int128 divisor = 1;
  for (; number.fraction > 0; --number.fraction) {
    if (divisor > nanounits_max) return number.digits == 0 ? 0 : 1;
    divisor *= 10;
  }
  constexpr Int128 max = std::numeric_limits<Int128>::max();
  if (number.digits != 0 && unit > max / number.digits) return std::nullopt;
  const Int128 product = number.digits * unit;
  const Int128 value = product / divisor + (product % divisor != 0 ? 1 : 0);
  if (value > nanounits_max) return std::nullopt;
  return value;
}

/// "e3", "E-2": a power of ten as nanounits.
std::optional<Int128> exponent_unit(std::string_view text) {
  if (text.size() < 2 || (text[0] != 'e' && text[0] != 'E')) return std::nullopt;
  text.remove_prefix(1);
  const bool negative = text[0] == '-';
  if (text[0] == '-' || text[0] == '+') text.remove_prefix(1);
  if (text.empty() || text.size() > 2 || !std::all_of(text.begin(), text.end(), is_digit)) return std::nullopt;
  int exponent = 0;
  for (const char c : text) exponent = exponent * 10 + (c - '0');
  if (exponent > (negative ? 9 : 18)) return std::nullopt;
  Int128 unit = nano;
  for (; exponent > 0; --exponent) unit = negative ? unit / 10 : unit * 10;
  return unit;
}

template <class Table>
std::optional<Int128> suffix_unit(const Table& table, std::string_view text) {
  for (const Suffix& suffix : table) {
    if (suffix.text == text) return suffix.nanounits;
  }
  return std::nullopt;
}

std::string digits_of(Int128 number) {
  std::string text;
  do {
    text.insert(text.begin(), static_cast<char>('0' + static_cast<int>(number % 10)));
    number /= 10;
  } while (number > 0);
  return text;
}

Int128 divide_up(Int128 number, Int128 divisor) {
  return number / divisor + (number % divisor > 0 ? 1 : 0);
}

}  // namespace

Quantity Quantity::saturated(Int128 nanounits, Format format) {
  return Quantity(std::clamp(nanounits, -nanounits_max, nanounits_max), format);
}

Quantity Quantity::of(std::int64_t units, Format format) {
  return saturated(Int128{units} * nano, format);
}

std::optional<Quantity> Quantity::parse(std::string_view text) {
  if (text.size() > text_bytes_max) return std::nullopt;
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  const std::optional<Decimal> number = take_decimal(text);
  if (!number) return std::nullopt;
  Format format = Format::decimal;
  std::optional<Int128> unit = suffix_unit(decimal_suffixes, text);
  if (!unit) {
    unit = suffix_unit(binary_suffixes, text);
    if (unit) format = Format::binary;
  }
  if (!unit) unit = exponent_unit(text);
  if (!unit) return std::nullopt;
  const std::optional<Int128> value = scale(*number, *unit);
  if (!value) return std::nullopt;
  return Quantity(negative ? -*value : *value, format);
}

std::int64_t Quantity::units() const {
  return static_cast<std::int64_t>(divide_up(nanounits_, nano));
}

std::int64_t Quantity::milliunits() const {
  const Int128 value = divide_up(nanounits_, nano / 1'000);
  return static_cast<std::int64_t>(std::clamp(value, -units_max, units_max));
}

std::string Quantity::to_string() const {
  const std::string sign = nanounits_ < 0 ? "-" : "";
  const Int128 size = nanounits_ < 0 ? -nanounits_ : nanounits_;
  if (size == 0) return "0";
  if (format_ == Format::binary) {
    for (const Suffix& suffix : binary_suffixes) {
      if (size % suffix.nanounits == 0) return sign + digits_of(size / suffix.nanounits) + std::string(suffix.text);
    }
  }
  for (const Suffix& suffix : decimal_suffixes) {
    if (size % suffix.nanounits == 0) return sign + digits_of(size / suffix.nanounits) + std::string(suffix.text);
  }
  return "0";
}

Quantity Quantity::operator+(const Quantity& other) const {
  return saturated(nanounits_ + other.nanounits_, format_);
}
Quantity Quantity::operator-(const Quantity& other) const {
  return saturated(nanounits_ - other.nanounits_, format_);
}
Quantity Quantity::operator*(std::int64_t factor) const {
  const Int128 wide = factor;
  const Int128 size = wide < 0 ? -wide : wide;
  const Int128 own = nanounits_ < 0 ? -nanounits_ : nanounits_;
  const bool negative = (wide < 0) != (nanounits_ < 0);
  if (size != 0 && own > nanounits_max / size) {
    return Quantity(negative ? -nanounits_max : nanounits_max, format_);
  }
  return Quantity(nanounits_ * wide, format_);
}

}  // namespace penstock::kube
