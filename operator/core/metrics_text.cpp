#include "operator/core/metrics_text.hpp"

#include <charconv>
#include <cmath>
#include <limits>

namespace penstock::ctl {
namespace {

constexpr std::size_t page_bytes_max = 4 << 20;

std::optional<double> number(std::string_view text) {
  if (text == "+Inf") return std::numeric_limits<double>::infinity();
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || std::isnan(value)) return std::nullopt;
  return value;
}

/// The value of a label within {...}; no label value of ours holds a quotation mark.
std::optional<std::string_view> label_of(std::string_view labels, std::string_view name) {
  const std::string start = std::string(name) + "=\"";
  const std::size_t at = labels.find(start);
  if (at == std::string_view::npos) return std::nullopt;
  labels.remove_prefix(at + start.size());
  const std::size_t end = labels.find('"');
  if (end == std::string_view::npos) return std::nullopt;
  return labels.substr(0, end);
}

void add_sample(MetricsReading& reading, std::string_view line) {
  const std::size_t name_end = line.find_first_of("{ ");
  if (name_end == std::string_view::npos) return;
  const std::string_view name = line.substr(0, name_end);
  std::string_view labels;
  std::size_t value_at = name_end;
  if (line[name_end] == '{') {
    value_at = line.find('}', name_end);
    if (value_at == std::string_view::npos) return;
    labels = line.substr(name_end + 1, value_at - name_end - 1);
    ++value_at;
  }
  value_at = line.find_first_not_of(' ', value_at);
  if (value_at == std::string_view::npos) return;
  const std::string_view rest = line.substr(value_at);
  const auto value = number(rest.substr(0, rest.find(' ')));
  if (!value) return;
  constexpr std::string_view bucket = "_bucket";
  if (name.ends_with(bucket)) {
    const auto bound = label_of(labels, "le");
    const auto upper = bound ? number(*bound) : std::nullopt;
    if (upper) reading.buckets[std::string(name.substr(0, name.size() - bucket.size()))][*upper] += *value;
    return;
  }
  reading.sums[std::string(name)] += *value;
}

}  // namespace

void add_page(MetricsReading& reading, std::string_view page, std::string_view prefix) {
  page = page.substr(0, page_bytes_max);
  while (!page.empty()) {
    const std::size_t end = page.find('\n');
    const std::string_view line = page.substr(0, end);
    page = end == std::string_view::npos ? std::string_view() : page.substr(end + 1);
    if (line.starts_with(prefix)) add_sample(reading, line);
  }
}

std::optional<double> gained(const MetricsReading& before, const MetricsReading& after, std::string_view name) {
  const auto from = before.sums.find(name), to = after.sums.find(name);
  if (from == before.sums.end() || to == after.sums.end() || to->second < from->second) return std::nullopt;
  return to->second - from->second;
}

std::optional<double> quantile_gained(const MetricsReading& before, const MetricsReading& after, std::string_view name,
                                      double quantile) {
  const auto from = before.buckets.find(name), to = after.buckets.find(name);
  if (from == before.buckets.end() || to == after.buckets.end()) return std::nullopt;
  std::map<double, double> gain;  // cumulative
  for (const auto& [bound, count] : to->second) {
    const auto old = from->second.find(bound);
    const double was = old == from->second.end() ? 0 : old->second;
    if (count < was) return std::nullopt;
    gain[bound] = count - was;
  }
  if (gain.empty() || gain.rbegin()->second <= 0) return std::nullopt;
  const double rank = quantile * gain.rbegin()->second;
  double lower_bound = 0, lower_count = 0;
  for (const auto& [bound, count] : gain) {
    if (count >= rank && count > lower_count) {
      // The last bucket has no upper end: all that can be said is its lower one.
      if (std::isinf(bound)) return lower_bound;
      return lower_bound + (bound - lower_bound) * (rank - lower_count) / (count - lower_count);
    }
    lower_bound = bound;
    lower_count = count;
  }
  return lower_bound;
}

}  // namespace penstock::ctl
