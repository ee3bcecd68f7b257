#include "operator/core/agent/transfer.hpp"

#include "operator/core/names.hpp"

namespace penstock::ctl {
namespace {

struct ContentRange {
  std::uint64_t first = 0;
  std::optional<std::uint64_t> total;
};

/// "bytes 100-199/200", or with an asterisk for a total that isn't known.
std::optional<ContentRange> parse_range(std::string_view text) {
  if (!text.starts_with("bytes ")) return std::nullopt;
  text.remove_prefix(6);
  const auto dash = text.find('-'), slash = text.find('/');
  if (dash == std::string_view::npos || slash == std::string_view::npos || slash < dash) return std::nullopt;
  const auto first = parse_decimal(text.substr(0, dash));
  if (!first) return std::nullopt;
  ContentRange out{*first, std::nullopt};
  if (const auto total = text.substr(slash + 1); total != "*") {
    out.total = parse_decimal(total);
    if (!out.total) return std::nullopt;
  }
  return out;
}

Error refusal(int status) {
  const std::string said = "the source answered " + std::to_string(status);
  switch (status) {
    case 401:
    case 403:
      return make_error(ErrorCode::permission_denied, said + ". Give the agent a token that may read it.");
    case 404:
    case 410:
      return make_error(ErrorCode::not_found, said + ". Correct the URI or the revision.");
    case 408:
    case 425:
    case 429:
      return make_error(ErrorCode::unavailable, said);
    default:
      return make_error(status >= 500 ? ErrorCode::unavailable : ErrorCode::invalid_argument, said);
  }
}

}  // namespace

FileTransfer::FileTransfer(std::optional<std::uint64_t> expected, std::uint64_t limit, std::uint64_t have)
    : expected_(expected), limit_(limit), have_(have) {
  if (expected_ && have_ > *expected_) have_ = 0;  // of another version of the file
}

std::string FileTransfer::range() const {
  return have_ == 0 ? std::string() : "bytes=" + std::to_string(have_) + "-";
}

Result<void> FileTransfer::expect(std::uint64_t total) {
  if (total > limit_) {
    return make_error(ErrorCode::resource_exhausted, "the source has " + std::to_string(total) + " bytes where " +
                                                         std::to_string(limit_) + " are allowed. Raise spec.size.");
  }
  if (expected_ && *expected_ != total) {
    return make_error(ErrorCode::data_loss, "the source has " + std::to_string(total) + " bytes where it listed " +
                                                std::to_string(*expected_));
  }
  expected_ = total;
  return {};
}

Result<TransferStep> FileTransfer::on_head(int status, std::optional<std::string_view> content_range,
                                           std::optional<std::string_view> content_length) {
  if (status == 301 || status == 302 || status == 303 || status == 307 || status == 308) return TransferStep::redirect;
  if (status == 200) {
    have_ = 0;
    const auto length = content_length ? parse_decimal(*content_length) : std::nullopt;
    if (length) PENSTOCK_TRY_VOID(expect(*length));
    return TransferStep::restart;
  }
  if (status == 206) {
    const auto range = content_range ? parse_range(*content_range) : std::nullopt;
    if (!range || range->first != have_) {
      return make_error(ErrorCode::data_loss, "the source answered with another part than it was asked for");
    }
    if (range->total) PENSTOCK_TRY_VOID(expect(*range->total));
    return TransferStep::append;
  }
  if (status == 416) return make_error(ErrorCode::data_loss, "the source has less than is on disk");
  return refusal(status);
}

Result<void> FileTransfer::on_bytes(std::uint64_t count) {
  const std::uint64_t most = expected_ ? *expected_ : limit_;
  if (count > most - std::min(most, have_)) {
    return make_error(expected_ ? ErrorCode::data_loss : ErrorCode::resource_exhausted,
                      expected_ ? "the source sent more than it said" : "the source sends more than spec.size allows");
  }
  have_ += count;
  return {};
}

Result<void> FileTransfer::on_end() {
  if (!expected_) expected_ = have_;
  if (have_ == *expected_) return {};
  return make_error(ErrorCode::unavailable,
                    "the source ended after " + std::to_string(have_) + " of " + std::to_string(*expected_) + " bytes");
}

}  // namespace penstock::ctl
