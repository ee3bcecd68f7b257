#include <gtest/gtest.h>

#include "common/base/bytes.hpp"
#include "common/base/check.hpp"
#include "common/base/id.hpp"
#include "common/base/result.hpp"

namespace penstock {
namespace {

TEST(Id, RoundTripsThroughThirtyTwoHexDigits) {
  const RequestId id{0x0123456789abcdefull, 0xfedcba9876543210ull};
  EXPECT_EQ(to_string(id), "0123456789abcdeffedcba9876543210");
  EXPECT_EQ(parse_id<RequestId>(to_string(id)), id);
}

TEST(Id, RefusesWrongLengthAndForeignDigits) {
  EXPECT_FALSE(parse_id<RequestId>("0123"));
  EXPECT_FALSE(parse_id<RequestId>("0123456789abcdeffedcba987654321g"));
  EXPECT_FALSE(parse_id<RequestId>("-123456789abcdeffedcba98765432100"));
}

TEST(Id, RandomIdsDiffer) { EXPECT_NE(random_id<InstanceId>(), random_id<InstanceId>()); }

TEST(ByteReader, StaysFailedAfterReadingPastTheEnd) {
  base::Bytes bytes;
  base::ByteWriter writer(bytes);
  writer.write<std::uint16_t>(7);
  base::ByteReader reader(bytes);
  EXPECT_EQ(reader.read<std::uint32_t>(), 0u);
  EXPECT_FALSE(reader.ok());
  EXPECT_EQ(reader.read<std::uint8_t>(), 0u);
  EXPECT_FALSE(reader.ok());
}

TEST(ByteReader, RefusesCountsBeyondTheBuffer) {
  base::Bytes bytes(8);
  base::ByteReader reader(bytes);
  EXPECT_TRUE(reader.take(~0ull).empty());
  EXPECT_FALSE(reader.ok());
}

Result<int> half(int value) {
  if (value % 2 != 0) return make_error(ErrorCode::invalid_argument, "odd");
  return value / 2;
}
Result<int> quarter(int value) {
  PENSTOCK_TRY(const int first, half(value));
  return half(first);
}

TEST(Result, TryPassesValuesAndErrorsOn) {
  EXPECT_EQ(quarter(8).value(), 2);
  EXPECT_EQ(quarter(6).error().message, "odd");
  EXPECT_THROW(quarter(3).value(), std::runtime_error);
}

TEST(CheckDeathTest, PrintsConditionAndValues) {
  EXPECT_DEATH(PENSTOCK_CHECK(1 > 2, "free", 3), "1 > 2 | free 3");
}

}  // namespace
}  // namespace penstock
