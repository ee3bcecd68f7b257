// The agent's folder on the node. A copy is a folder `NAMESPACE.NAME` with the files and a record of what it is; one
// that is being fetched is `.NAMESPACE.NAME.partial` beside it, so that a worker never mounts half of one. A copy
// appears by one rename, after its files and the record have reached the disk. Blocking: for the agent's fetch thread;
// figures() is quick. One thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.hpp"
#include "common/digest/digest.hpp"
#include "operator/core/agent/node_agent.hpp"

namespace penstock::ctl {

/// Digests of a file as it grows. Of a git blob too, if its size is known.
class FileDigest {
 public:
  void add(std::string_view bytes);
  std::string sha256() const { return sha256_.hex(); }
  /// Of what was added so far, as `git hash-object` says it. `bytes` is the size that start_git() was given.
  void start_git(std::uint64_t bytes);
  std::string git_sha1() const { return git_ ? git_->hex() : std::string(); }

 private:
  digest::Digest sha256_{digest::Algorithm::sha256};
  std::optional<digest::Digest> git_;
};

struct DiskFigures {
  std::int64_t capacity_bytes = 0, available_bytes = 0;
};

/// A file of a begun copy, open for appending. Closed by its destructor.
class PartialFile {
 public:
  PartialFile(int descriptor, std::string path) : descriptor_(descriptor), path_(std::move(path)) {}
  ~PartialFile();
  PartialFile(PartialFile&& other) noexcept;
  PartialFile& operator=(PartialFile&&) = delete;

  Result<std::uint64_t> size() const;
  /// Reads what is there into a digest.
  Result<void> add_to(FileDigest& digest) const;
  Result<void> truncate();
  Result<void> append(std::string_view bytes);
  /// Until it is on the disk.
  Result<void> sync();

 private:
  int descriptor_;
  std::string path_;
};

class Disk {
 public:
  /// `reserve_bytes` of the file system stay free: below that a write is refused.
  Disk(std::string folder, std::int64_t reserve_bytes) : folder_(std::move(folder)), reserve_bytes_(reserve_bytes) {}

  /// The folder is there and can be written to.
  Result<void> check() const;
  Result<DiskFigures> figures() const;
  /// Copies that are complete. What isn't one of ours is left alone.
  std::vector<HeldCopy> copies() const;
  /// Bytes of the ones that are begun, by cache.
  std::map<std::string, std::int64_t> begun() const;

  /// A file of a begun copy, made if need be.
  Result<PartialFile> open(const std::string& cache, const std::string& name) const;
  /// Error resource_exhausted: the reserve is all that is left.
  Result<void> check_room() const;
  /// Files of a begun copy that the source doesn't list any more go.
  void keep_only(const std::string& cache, const std::vector<std::string>& names) const;
  /// The begun copy becomes the copy.
  Result<void> publish(const HeldCopy& copy) const;
  /// Both the copy and a begun one.
  Result<void> remove(const std::string& cache) const;
  /// That the copy was in the wish now; kept as the time of its record.
  void touch(const std::string& cache) const;

  std::string copy_folder(const std::string& cache) const;
  std::string begun_folder(const std::string& cache) const;

 private:
  std::string folder_;
  std::int64_t reserve_bytes_;
};

}  // namespace penstock::ctl
