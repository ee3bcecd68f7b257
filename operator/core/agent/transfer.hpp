// The transfer of one file, with resume: what to ask for, what an answer means, when it is complete. The caller moves
// the bytes. Pure; one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/result.hpp"

namespace penstock::ctl {

/// What an answer's head means for what is on disk already.
enum class TransferStep : std::uint8_t {
  append,   // the body goes on where the disk ends
  restart,  // the body is the file from its beginning: what is there is dropped
  redirect,
};

class FileTransfer {
 public:
  /// `expected`: the size, if the source tells it. `limit`: more than that is refused. `have`: bytes on disk.
  FileTransfer(std::optional<std::uint64_t> expected, std::uint64_t limit, std::uint64_t have);

  /// Nothing is to be asked for: the disk has it all.
  bool is_complete() const { return expected_ && have_ == *expected_; }
  /// "bytes=100-", or "" for the whole file.
  std::string range() const;
  /// Errors: unavailable (try again), permission_denied and not_found (the source says no), data_loss (what is on disk
  /// isn't a beginning of it: drop it and ask again), resource_exhausted (larger than it may be).
  Result<TransferStep> on_head(int status, std::optional<std::string_view> content_range,
                               std::optional<std::string_view> content_length);
  Result<void> on_bytes(std::uint64_t count);
  /// The body's proper end. unavailable: it was short, and the rest can be asked for.
  Result<void> on_end();

  std::uint64_t have() const { return have_; }

 private:
  Result<void> expect(std::uint64_t total);

  std::optional<std::uint64_t> expected_;
  std::uint64_t limit_, have_;
};

}  // namespace penstock::ctl
