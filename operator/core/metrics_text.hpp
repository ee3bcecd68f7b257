// Figures out of a program's /metrics page (the Prometheus text format): sums over the series of a name, and quantiles
// of what a histogram gained between two readings. Text is hostile: whatever is no sample is passed over. Pure; any
// thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace penstock::ctl {

/// One reading of a page: for each wanted name the sum over its series, and the cumulative buckets of histograms by
/// upper bound. Pages of several programs add up.
struct MetricsReading {
  std::map<std::string, double, std::less<>> sums;
  std::map<std::string, std::map<double, double>, std::less<>> buckets;  // name without "_bucket"
};

/// Adds a page's samples whose names begin with `prefix`. Pages beyond 4 MiB are cut.
void add_page(MetricsReading& reading, std::string_view page, std::string_view prefix);

/// What a counter gained; nothing if either reading lacks it or it went back (a program started anew).
std::optional<double> gained(const MetricsReading& before, const MetricsReading& after, std::string_view name);

/// The quantile (0 to 1) of the observations that a histogram gained, by linear interpolation within a bucket as
/// Prometheus' histogram_quantile does; nothing if it gained none.
std::optional<double> quantile_gained(const MetricsReading& before, const MetricsReading& after, std::string_view name,
                                      double quantile);

}  // namespace penstock::ctl
