// Keeps a cache equal to one resource of the API server, given bytes: WatchMachine decides, ObjectSplitter finds
// objects, each is parsed in a reused arena and handed to the CacheSink. The shell makes the requests that step() asks
// for and feeds what comes. Pure; one owner.
#pragma once

#include <array>
#include <boost/json/monotonic_resource.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/kube/core/cache_sink.hpp"
#include "common/kube/core/managed_fields.hpp"
#include "common/kube/core/object_splitter.hpp"
#include "common/kube/core/watch_machine.hpp"

namespace penstock::kube {

/// Told as it happens; any member may be empty.
struct ReflectorObserver {
  std::function<void(Restart)> on_restart;
  std::function<void(const Error&)> on_bad_object;  // an object was passed over
  std::function<void()> on_synced;                  // a (re)list is in
};

class Reflector {
 public:
  Reflector(WatchOptions options, CacheSink& sink, std::uint64_t seed, ReflectorObserver observer = {});

  WatchStep next(TimePoint now);
  /// Bytes of a good (200) answer. False: enough; cut the connection and call next(), without on_end().
  bool on_bytes(std::string_view bytes, TimePoint now);
  /// The answer was not 200, or there was none.
  void on_failed(const ApiStatus& status, TimePoint now);
  void on_end(StreamEnd end, TimePoint now);

  const WatchMachine& machine() const { return machine_; }

 private:
  bool on_piece(const ObjectSplitter::Piece& piece, TimePoint now);
  bool on_stream_event(const json::Object& event, TimePoint now);
  bool on_envelope(std::string_view text, TimePoint now);
  void apply(Effect effect, const json::Object& object);
  void passed_over(const Error& error);
  bool refuse(const Error& error, TimePoint now);
  void after_step();

  WatchMachine machine_;
  CacheSink& sink_;
  ReflectorObserver observer_;
  ObjectSplitter splitter_;
  ManagedFieldsFilter managed_fields_;
  RequestKind request_ = RequestKind::watch;
  bool replacing_ = false;
  std::vector<unsigned char> arena_bytes_;
};

}  // namespace penstock::kube
