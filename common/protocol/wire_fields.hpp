// Shared between the encoder and the two decoders: ids, errors and durations as protobuf fields. Private to this
// folder.
#pragma once

#include <google/protobuf/arena.h>

#include <bit>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/base/id.hpp"
#include "common/base/result.hpp"
#include "common/protocol/messages.hpp"
#include "wire.pb.h"

namespace penstock::protocol::detail {

template <class Id>
void append_id(std::string& out, const Id& id) {
  const std::uint64_t halves[2] = {__builtin_bswap64(id.high), __builtin_bswap64(id.low)};
  out.append(reinterpret_cast<const char*>(halves), sizeof halves);
}

template <class Id>
std::string id_bytes(const Id& id) {
  std::string out;
  append_id(out, id);
  return out;
}

template <class Id>
Id id_at(const char* bytes) {
  std::uint64_t halves[2];
  std::memcpy(halves, bytes, sizeof halves);
  return {__builtin_bswap64(halves[0]), __builtin_bswap64(halves[1])};
}

/// Collects the first problem of a message, so that decoders read straight through and ask once at the end.
class Problems {
 public:
  void add(const char* what) {
    if (!first_) first_ = what;
  }
  template <class T>
  Result<T> finish(T value) const {
    if (first_) return make_error(ErrorCode::invalid_argument, first_);
    return value;
  }

 private:
  const char* first_ = nullptr;
};

template <class Id>
Id read_id(const std::string& bytes, Problems& problems) {
  if (bytes.size() != 16) {
    problems.add("an id does not have 16 bytes");
    return {};
  }
  return id_at<Id>(bytes.data());
}

template <class Id>
std::vector<Id> read_ids(const std::string& bytes, Problems& problems) {
  std::vector<Id> ids;
  if (bytes.size() % 16 != 0) {
    problems.add("a list of ids is not a multiple of 16 bytes");
    return ids;
  }
  ids.reserve(bytes.size() / 16);
  for (std::size_t at = 0; at < bytes.size(); at += 16) ids.push_back(id_at<Id>(bytes.data() + at));
  return ids;
}

/// Durations are non-negative and at most about 292 years, which is what 63 bits of nanoseconds hold.
inline Duration read_duration(std::uint64_t nanoseconds, Problems& problems) {
  if (nanoseconds > static_cast<std::uint64_t>(Duration::max().count())) {
    problems.add("a duration is out of range");
    return {};
  }
  return Duration(static_cast<Duration::rep>(nanoseconds));
}
inline std::uint64_t duration_field(Duration duration) {
  return duration < Duration::zero() ? 0 : static_cast<std::uint64_t>(duration.count());
}

inline Error read_error(const wire::Error& in, Problems& problems) {
  if (in.code() > static_cast<std::uint32_t>(ErrorCode::internal)) {
    problems.add("unknown error code");
    return {};
  }
  return {static_cast<ErrorCode>(in.code()), in.message()};
}

template <class Out, class In>
std::vector<Out> to_vector(const In& in) {
  return {in.begin(), in.end()};
}

/// Type numbers. Order inside the variants of messages.hpp does not matter for the wire; these constants do.
enum class WireType : std::uint16_t {
  hello = 1,
  generate = 2,
  prefill = 3,
  expect = 4,
  reoffer = 5,
  release = 6,
  abort = 7,
  snapshot_request = 8,
  get_blob = 9,
  drain = 10,
  ping = 11,
  welcome = 100,
  blob = 101,
  step = 102,
  cache_events = 103,
  snapshot = 104,
  load = 105,
  request_error = 106,
  transfer_status = 107,
  goodbye = 108,
  pong = 109,
  protocol_error = 110,
};

/// Parses `body` into a protobuf message of type Wire and gives it to `convert(wire, problems)`. Its parts live in an
/// arena that begins on the stack: most messages are small and come once a token.
template <class Out, class Wire, class Convert>
Result<Out> parse_as(std::string_view body, Convert convert) {
  alignas(8) char room[2048];
  google::protobuf::ArenaOptions options;
  options.initial_block = room;
  options.initial_block_size = sizeof room;
  google::protobuf::Arena arena(options);
  Wire& wire_message = *google::protobuf::Arena::CreateMessage<Wire>(&arena);
  if (!wire_message.ParseFromArray(body.data(), static_cast<int>(body.size()))) {
    return make_error(ErrorCode::data_loss, "a frame body is not a valid message of its type");
  }
  Problems problems;
  auto value = convert(wire_message, problems);
  return problems.finish<Out>(Out(std::move(value)));
}

}  // namespace penstock::protocol::detail
