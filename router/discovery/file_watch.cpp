#include "router/discovery/file_watch.hpp"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

namespace penstock::router {

FileWatch::FileWatch(std::string path, std::size_t bytes_max) : path_(std::move(path)), bytes_max_(bytes_max) {}

Result<std::optional<std::string>> FileWatch::poll() {
  const auto stamp = base::stamp_of(path_);
  if (!stamp) {
    seen_.reset();
    return make_error(ErrorCode::not_found, "cannot read " + path_ + ": " + std::strerror(errno));
  }
  if (seen_ == stamp) return std::optional<std::string>();
  if (stamp->size > static_cast<std::int64_t>(bytes_max_)) {
    return make_error(ErrorCode::resource_exhausted,
                      path_ + " is larger than " + std::to_string(bytes_max_) + " bytes");
  }
  std::ifstream file(path_, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file.is_open() || file.bad()) return make_error(ErrorCode::unavailable, "cannot read " + path_);
  seen_ = stamp;
  return std::optional<std::string>(std::move(text));
}

}  // namespace penstock::router
