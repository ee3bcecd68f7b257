#include "operator/api/common.hpp"

namespace penstock::ctl::api {

std::int64_t CountOrPercent::rounded_up(std::int64_t total) const {
  return is_percent ? (total * value + 99) / 100 : value;
}

std::int64_t CountOrPercent::rounded_down(std::int64_t total) const {
  return is_percent ? total * value / 100 : value;
}

}  // namespace penstock::ctl::api
