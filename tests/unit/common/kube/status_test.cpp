// What an answer of the API server means.
#include "common/kube/model/status.hpp"

#include <gtest/gtest.h>

namespace penstock::kube {
namespace {

TEST(ApiStatus, TellsConflictFromAlreadyExists) {
  const auto exists = parse_status(409, R"({"kind":"Status","code":409,"reason":"AlreadyExists","message":"m"})");
  EXPECT_EQ(exists.failure(), Failure::already_exists);
  EXPECT_EQ(to_string(exists), "409 AlreadyExists: m");
  EXPECT_EQ(parse_status(409, R"({"kind":"Status","reason":"Conflict"})").failure(), Failure::conflict);
}

TEST(ApiStatus, KnowsAVersionThatIsTooNew) {
  const auto by_cause = parse_status(504, R"({"kind":"Status","reason":"Timeout","details":{"causes":[
      {"reason":"ResourceVersionTooLarge","message":"Too large resource version"}],"retryAfterSeconds":1}})");
  EXPECT_EQ(by_cause.failure(), Failure::too_new);
  EXPECT_EQ(by_cause.retry_after, Duration(std::chrono::seconds(1)));
  EXPECT_EQ(parse_status(504, "gateway").failure(), Failure::server);
}

TEST(ApiStatus, TakesAnyBodyAndABoundedWait) {
  const auto page = parse_status(503, "<html>" + std::string(5000, 'x'), "7");
  EXPECT_EQ(page.failure(), Failure::server);
  EXPECT_EQ(page.retry_after, Duration(std::chrono::seconds(7)));
  EXPECT_LE(to_string(page).size(), 512u);
  EXPECT_EQ(parse_status(429, "", "99999999").retry_after, Duration(std::chrono::minutes(10)));
  EXPECT_FALSE(parse_status(429, "", "Wed, 21 Oct 2026 07:28:00 GMT").retry_after);
  EXPECT_FALSE(parse_status(429, "", "-1").retry_after);
}

TEST(ApiStatus, OfAnErrorEventWithoutACodeIsTheServersFault) {
  EXPECT_EQ(parse_status(json::Object()).failure(), Failure::server);
}

TEST(ApiStatus, BecomesAnError) {
  EXPECT_EQ(to_error(no_answer(make_error(ErrorCode::deadline_exceeded, "late"))).code, ErrorCode::unavailable);
  EXPECT_EQ(to_error(parse_status(403, "{}")).code, ErrorCode::permission_denied);
}

}  // namespace
}  // namespace penstock::kube
