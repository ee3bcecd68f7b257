// What holds without any setting. router/README.md lists the same numbers.
#include <gtest/gtest.h>

#include "common/json/json.hpp"
#include "common/protocol/messages.hpp"
#include "router/app/config.hpp"
#include "router/core/output/json_call.hpp"

namespace penstock::router {
namespace {

using std::chrono::seconds;

TEST(Limits, OfHttp) {
  const http::ServerLimits server = RouterConfig().server_limits();
  EXPECT_EQ(server.request_line_bytes_max, 8u << 10);
  EXPECT_EQ(server.header_bytes_max, 32u << 10);
  EXPECT_EQ(server.header_count_max, 100u);
  EXPECT_EQ(server.header_deadline, seconds(10));
  EXPECT_EQ(server.body_bytes_max, 8u << 20);
  EXPECT_EQ(server.body_deadline, seconds(60));
  EXPECT_EQ(server.body_bytes_per_second_min, 1u << 10);
  EXPECT_EQ(server.keep_alive_idle, seconds(75));
  EXPECT_EQ(server.requests_per_connection_max, 10'000u);
  EXPECT_EQ(server.connections_per_source_max, 1'000u);
  EXPECT_EQ(server.connections_max, 0u) << "half of the file-descriptor limit";
  EXPECT_EQ(server.stream_buffer_bytes_max, 256u << 10);
  EXPECT_EQ(server.stream_stall_max, seconds(30));
}

TEST(Limits, OfRequests) {
  const ApiLimits api;
  EXPECT_EQ(json::Limits().depth_max, 64u);
  EXPECT_EQ(json::Limits().keys_max, 10'000u);
  EXPECT_EQ(RouterConfig().limits.choices, 16u);
  EXPECT_EQ(api.n_max, 16u);
  EXPECT_EQ(api.logprobs_max, 20u);
  EXPECT_EQ(api.stops_max, 4u);
  EXPECT_EQ(api.logit_bias_max, 1'024u);
  EXPECT_EQ(api.tools_max, 128u);
  EXPECT_EQ(api.tools_bytes_max, 256u << 10);
  EXPECT_EQ(JsonCall::held_bytes_max, 256u << 10);
  EXPECT_EQ(OutputWriter::space_bytes_max, 256u);
  EXPECT_EQ(RouterConfig().limits.heartbeat, seconds(15));
  EXPECT_EQ(RouterConfig().limits.requests_per_key, 64u);
}

TEST(Limits, OfWaitingAndTryingAgain) {
  const RouterConfig config;
  const QueueSettings queue = config.queue_settings();
  EXPECT_EQ(queue.requests_max, 1'024u);
  EXPECT_EQ(queue.bytes_max, 64u << 20);
  EXPECT_EQ(queue.wait_max, seconds(30));
  const MigrationLimits migration = config.migration_limits();
  EXPECT_EQ(migration.retries_max, 1u);
  EXPECT_EQ(config.limits.retry_share, 0.1);
  EXPECT_EQ(migration.no_progress_decode, seconds(10));
  EXPECT_EQ(config.fleet_settings().policy.slow_start, seconds(30));
  EXPECT_EQ(protocol::frame_bytes_max, 1u << 20);
}

}  // namespace
}  // namespace penstock::router
