// Any bytes as a list and as a watch of the API server: never a crash, and the cache is the same however they are cut.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "common/kube/core/reflector.hpp"

namespace {

using namespace penstock;

struct Thing {
  kube::ObjectMeta meta;
};

Result<Thing> project(const json::Object& object) {
  auto meta = kube::parse_meta(object);
  if (!meta) return meta.error();
  return Thing{std::move(*meta)};
}

struct Cache {
  explicit Cache(kube::FirstList first) : sink(store, project), reflector(options(first), sink, 1) {}

  static kube::WatchOptions options(kube::FirstList first) {
    kube::WatchOptions made;
    made.first_list = first;
    return made;
  }
  void feed(std::string_view bytes, std::size_t part) {
    const TimePoint now{std::chrono::hours(1)};
    reflector.next(now);
    for (std::size_t at = 0; at < bytes.size(); at += part) {
      if (!reflector.on_bytes(bytes.substr(at, part), now)) return;
    }
    reflector.on_end(kube::StreamEnd::closed, now);
  }
  bool operator==(const Cache& other) const {
    if (store.synced() != other.store.synced() || store.version() != other.store.version()) return false;
    const auto mine = store.all(), theirs = other.store.all();
    if (mine.size() != theirs.size()) return false;
    for (std::size_t i = 0; i < mine.size(); ++i) {
      if (!(mine[i]->meta == theirs[i]->meta)) return false;
    }
    return reflector.machine().version() == other.reflector.machine().version();
  }

  kube::Store<Thing> store;
  kube::StoreSink<Thing> sink;
  kube::Reflector reflector;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  for (const kube::FirstList first : {kube::FirstList::streamed, kube::FirstList::paged}) {
    Cache whole(first), parts(first);
    whole.feed(bytes, size + 1);
    parts.feed(bytes, 7);
    if (!(whole == parts)) std::abort();
  }
  return 0;
}
