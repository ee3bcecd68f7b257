#include "common/log/logger.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <stdexcept>

#include "common/json/json.hpp"
#include "common/time/wall_clock.hpp"

namespace penstock::log {
namespace {

TEST(Logger, LogfmtQuotesOnlyWhatNeedsIt) {
  auto sink = std::make_shared<MemorySink>();
  Logger logger(sink, Level::info, Format::logfmt);
  logger.info("request failed", {{"request_id", "abc-1"}, {"status", 500}, {"detail", "a b=\"c\"\n"}, {"ok", false}});
  ASSERT_EQ(sink->lines().size(), 1u);
  EXPECT_TRUE(sink->contains(
      {"level=info message=\"request failed\" request_id=abc-1 status=500", R"(detail="a b=\"c\"\n" ok=false)"}));
}

TEST(Logger, JsonLinesParse) {
  auto sink = std::make_shared<MemorySink>();
  Logger logger(sink, Level::debug, Format::json);
  std::string worker = "w\xFF\n1";
  logger.with({{"worker", worker}}).warn("worker lost", {{"tokens", std::uint64_t{7}}, {"seconds", 0.25}});
  auto line = json::parse(sink->lines().at(0));
  ASSERT_TRUE(line) << line.error().message;
  const auto& object = line->as_object();
  EXPECT_EQ(object.at("level").as_string(), "warn");
  EXPECT_EQ(object.at("message").as_string(), "worker lost");
  EXPECT_EQ(object.at("worker").as_string(), "w\xEF\xBF\xBD\n1");
  EXPECT_EQ(object.at("tokens").as_int64(), 7);
  EXPECT_EQ(object.at("seconds").as_double(), 0.25);
}

TEST(Logger, DropsWhatIsBelowItsLevel) {
  auto sink = std::make_shared<MemorySink>();
  Logger logger(sink, Level::warn, Format::logfmt);
  logger.info("started");
  logger.error("broken");
  EXPECT_EQ(sink->lines().size(), 1u);
  EXPECT_FALSE(Logger().enabled(Level::error));
}

TEST(Logger, WritesAFileThatCanBeRead) {
  char path[] = "/tmp/penstock-log-XXXXXX";
  int file = mkstemp(path);
  ASSERT_GE(file, 0);
  close(file);
  {
    Logger logger = make_logger({.level = Level::info, .format = Format::logfmt, .file = path});
    for (int i = 0; i < 100; ++i) logger.info("line", {{"i", i}});
  }
  std::ifstream in(path);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 100);
  EXPECT_NE(text.find("message=\"line\" i=99\n"), std::string::npos);
  unlink(path);
}

// A process that ends right after a flush has said why.
TEST(Logger, WhatIsFlushedHasBeenWritten) {
  char path[] = "/tmp/penstock-log-XXXXXX";
  int file = mkstemp(path);
  ASSERT_GE(file, 0);
  close(file);
  const Logger logger = make_logger({.level = Level::info, .format = Format::logfmt, .file = path});
  for (int i = 1; i <= 200; ++i) {
    logger.error("line", {{"i", i}});
    logger.flush();
    std::ifstream in(path);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    ASSERT_EQ(std::count(text.begin(), text.end(), '\n'), i);
  }
  unlink(path);
}

TEST(Logger, LinesBeginWithTheTimeInUtc) {
  EXPECT_EQ(format_iso8601({0, 7}), "1970-01-01T00:00:00.007Z");
  EXPECT_EQ(format_iso8601({1769903999, 123}), "2026-01-31T23:59:59.123Z");
  EXPECT_EQ(format_http_date({1769903999, 0}), "Sat, 31 Jan 2026 23:59:59 GMT");
  auto sink = std::make_shared<MemorySink>();
  Logger(sink, Level::info, Format::logfmt).info("x");
  EXPECT_EQ(sink->lines().at(0).substr(0, 7), "time=20");
}

TEST(Logger, SaysWhichFileCannotBeOpened) {
  EXPECT_THROW(make_logger({.file = "/proc/no-such-folder/log"}), std::runtime_error);
}

}  // namespace
}  // namespace penstock::log
