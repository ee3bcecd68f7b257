// A copy for bytes that nobody here reads soon: it writes past the caches, so that the target's lines are not fetched
// first and the engine's data stays cached. On a machine without such stores it is memcpy. Pure.
#pragma once

#include <cstddef>

namespace penstock::worker::transfer {

/// The ranges don't overlap. Complete when it returns, also for other threads that are told of it afterwards.
void stream_copy(std::byte* target, const std::byte* source, std::size_t bytes);

}  // namespace penstock::worker::transfer
