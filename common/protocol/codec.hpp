// Messages to frame bodies and back. The frame header (u32 length, u16 type, u16 flags, little-endian) belongs to
// common/async/frame_connection.hpp; here a message is (type, body). Pure; any thread. Decoding treats bytes as
// hostile: unknown types are errors, unknown fields are ignored, repeated fields are bounded by the frame cap, ids must
// have 16 bytes, enums must be known.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/result.hpp"
#include "common/protocol/messages.hpp"

namespace penstock::protocol {

/// Type numbers on the wire: router to worker below 100, worker to router from 100.
struct EncodedMessage {
  std::uint16_t type = 0;
  std::string body;  // protobuf
};

EncodedMessage encode(const RouterMessage& message);
EncodedMessage encode(const WorkerMessage& message);
Result<RouterMessage> decode_router_message(std::uint16_t type, std::string_view body);
Result<WorkerMessage> decode_worker_message(std::uint16_t type, std::string_view body);

}  // namespace penstock::protocol
