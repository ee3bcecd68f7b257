#include "common/log/logger.hpp"

#include <spdlog/async_logger.h>
#include <spdlog/details/thread_pool.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <stdexcept>

#include "common/json/writer.hpp"
#include "common/time/wall_clock.hpp"

namespace penstock::log {

std::string_view to_string(Level level) {
  switch (level) {
    case Level::debug:
      return "debug";
    case Level::info:
      return "info";
    case Level::warn:
      return "warn";
    case Level::error:
      return "error";
  }
  return "error";
}

Result<Level> parse_level(std::string_view text) {
  for (Level level : {Level::debug, Level::info, Level::warn, Level::error}) {
    if (to_string(level) == text) return level;
  }
  return make_error(ErrorCode::invalid_argument, "the log level must be debug, info, warn or error");
}

Result<Format> parse_format(std::string_view text) {
  if (text == "logfmt") return Format::logfmt;
  if (text == "json") return Format::json;
  return make_error(ErrorCode::invalid_argument, "the log format must be logfmt or json");
}

namespace {

constexpr std::size_t queue_lines_max = 8192;
constexpr auto flush_wait_max = std::chrono::seconds(1);
constexpr std::size_t text_bytes_max = 4096;  // of one value, so that no peer can flood the log with one line

bool is_bare(std::string_view text) {
  if (text.empty()) return false;
  for (char c : text) {
    if (c <= ' ' || c == '"' || c == '=' || c == '\\' || c == 0x7F) return false;
  }
  return true;
}

void append_text(std::string& out, std::string_view text, Format format) {
  text = text.substr(0, text_bytes_max);
  if (format == Format::logfmt && is_bare(text)) {
    // Also bare text goes through the escaper, which replaces bytes that are not UTF-8.
    json::append_escaped(out, text);
  } else {
    json::append_quoted(out, text);
  }
}

void append_value(std::string& out, const Field::Value& value, Format format) {
  std::visit(
      [&](const auto& content) {
        using T = std::decay_t<decltype(content)>;
        if constexpr (std::same_as<T, std::string_view>) {
          append_text(out, content, format);
        } else if constexpr (std::same_as<T, bool>) {
          out += content ? "true" : "false";
        } else {
          json::append_number(out, content);
        }
      },
      value);
}

void append_fields(std::string& out, Fields fields, Format format) {
  for (const Field& field : fields) {
    if (format == Format::json) {
      out += ',';
      json::append_quoted(out, field.key);
      out += ':';
    } else {
      out += ' ';
      out += field.key;
      out += '=';
    }
    append_value(out, field.value, format);
  }
}

spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
    case Level::debug:
      return spdlog::level::debug;
    case Level::info:
      return spdlog::level::info;
    case Level::warn:
      return spdlog::level::warn;
    case Level::error:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

/// Where the queue ends. A line of the level `mark`, which no caller has, is a number: it is not written, but tells
/// that all lines before it have been.
class MarkedTarget final : public spdlog::sinks::sink {
 public:
  static constexpr auto mark = spdlog::level::critical;

  explicit MarkedTarget(spdlog::sink_ptr target) : target_(std::move(target)) {}
  void log(const spdlog::details::log_msg& message) override {
    if (message.level != mark) return target_->log(message);
    target_->flush();
    std::uint64_t number = 0;
    std::from_chars(message.payload.data(), message.payload.data() + message.payload.size(), number);
    const std::lock_guard lock(mutex_);
    seen_ = std::max(seen_, number);
    changed_.notify_all();
  }
  void flush() override { target_->flush(); }
  void set_pattern(const std::string& pattern) override { target_->set_pattern(pattern); }
  void set_formatter(std::unique_ptr<spdlog::formatter> formatter) override {
    target_->set_formatter(std::move(formatter));
  }
  std::uint64_t next_mark() { return asked_.fetch_add(1) + 1; }
  void wait(std::uint64_t number) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, flush_wait_max, [&] { return seen_ >= number; });
  }

 private:
  spdlog::sink_ptr target_;
  std::atomic<std::uint64_t> asked_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t seen_ = 0;
};

/// Hands lines to a thread of its own through spdlog's bounded queue.
class QueuedSink final : public Sink {
 public:
  explicit QueuedSink(spdlog::sink_ptr target)
      : target_(std::make_shared<MarkedTarget>(std::move(target))),
        pool_(std::make_shared<spdlog::details::thread_pool>(queue_lines_max, 1)),
        logger_(std::make_shared<spdlog::async_logger>("penstock", target_, pool_,
                                                       spdlog::async_overflow_policy::overrun_oldest)) {
    logger_->set_level(spdlog::level::trace);
    logger_->set_pattern("%v");
    logger_->flush_on(spdlog::level::info);
  }
  void write(Level level, std::string_view line) override {
    logger_->log(to_spdlog(level), spdlog::string_view_t(line.data(), line.size()));
  }
  /// Returns when all lines before it have been written, or late; spdlog's own flush only asks for that.
  void flush() override {
    const std::uint64_t number = target_->next_mark();
    logger_->log(MarkedTarget::mark, std::to_string(number));
    target_->wait(number);
  }

 private:
  std::shared_ptr<MarkedTarget> target_;
  std::shared_ptr<spdlog::details::thread_pool> pool_;  // its destructor writes what is queued, then joins
  std::shared_ptr<spdlog::async_logger> logger_;
};

}  // namespace

Logger::Logger(std::shared_ptr<Sink> sink, Level level, Format format)
    : sink_(std::move(sink)), level_(level), format_(format) {}

Logger Logger::with(Fields fields) const {
  Logger child = *this;
  append_fields(child.context_, fields, format_);
  return child;
}

void Logger::log(Level level, std::string_view message, Fields fields) const {
  if (!enabled(level)) return;
  std::string line;
  line.reserve(256);
  if (format_ == Format::json) {
    line += "{\"time\":\"" + format_iso8601(wall_now()) + "\",\"level\":\"";
    line += to_string(level);
    line += "\",\"message\":";
    json::append_quoted(line, message);
  } else {
    line += "time=" + format_iso8601(wall_now()) + " level=";
    line += to_string(level);
    line += " message=";
    json::append_quoted(line, message);
  }
  line += context_;
  append_fields(line, fields, format_);
  if (format_ == Format::json) line += '}';
  sink_->write(level, line);
}

void Logger::flush() const {
  if (sink_ != nullptr) sink_->flush();
}

Logger make_logger(const Options& options) {
  spdlog::sink_ptr target;
  if (options.file.empty()) {
    target = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  } else {
    try {
      target = std::make_shared<spdlog::sinks::basic_file_sink_mt>(options.file);
    } catch (const spdlog::spdlog_ex& error) {
      throw std::runtime_error("the log file " + options.file + " can't be opened: " + error.what());
    }
  }
  return Logger(std::make_shared<QueuedSink>(std::move(target)), options.level, options.format);
}

void MemorySink::write(Level, std::string_view line) {
  std::lock_guard lock(mutex_);
  lines_.emplace_back(line);
}

std::vector<std::string> MemorySink::lines() const {
  std::lock_guard lock(mutex_);
  return lines_;
}

bool MemorySink::contains(std::initializer_list<std::string_view> parts) const {
  std::lock_guard lock(mutex_);
  for (const std::string& line : lines_) {
    bool all = true;
    for (std::string_view part : parts) all = all && line.find(part) != std::string::npos;
    if (all) return true;
  }
  return false;
}

}  // namespace penstock::log
