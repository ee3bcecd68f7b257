// Kubernetes quantities: "500m", "8Gi", "1e3", "1.5". Exact down to 1e-9, finer is rounded up, as the API does. Plain
// value; pure, any thread.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace penstock::kube {

__extension__ typedef __int128 Int128;

class Quantity {
 public:
  enum class Format : std::uint8_t { decimal, binary };

  constexpr Quantity() = default;
  static Quantity of(std::int64_t units, Format format = Format::decimal);
  /// Nothing if the text is no quantity or its size is over 2^63-1 units.
  static std::optional<Quantity> parse(std::string_view text);

  std::int64_t units() const;       // rounded up (away from zero for positive numbers)
  std::int64_t milliunits() const;  // rounded up; saturates
  bool is_zero() const { return nanounits_ == 0; }
  std::string to_string() const;  // the shortest form with the same value and format

  /// Saturating.
  Quantity operator+(const Quantity& other) const;
  Quantity operator-(const Quantity& other) const;
  Quantity operator*(std::int64_t factor) const;
  /// By value: "1Gi" equals "1073741824".
  friend bool operator==(const Quantity& a, const Quantity& b) { return a.nanounits_ == b.nanounits_; }
  friend std::strong_ordering operator<=>(const Quantity& a, const Quantity& b) {
    return a.nanounits_ < b.nanounits_   ? std::strong_ordering::less
           : a.nanounits_ > b.nanounits_ ? std::strong_ordering::greater
                                         : std::strong_ordering::equal;
  }

 private:
  Quantity(Int128 nanounits, Format format) : nanounits_(nanounits), format_(format) {}
  static Quantity saturated(Int128 nanounits, Format format);

  Int128 nanounits_ = 0;
  Format format_ = Format::decimal;
};

}  // namespace penstock::kube
