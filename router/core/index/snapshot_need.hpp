// Whether the shell must send a SNAPSHOT_REQUEST to a worker.
#pragma once

#include <cstdint>

namespace penstock::router {

enum class SnapshotNeed : std::uint8_t { none, request };

}  // namespace penstock::router
