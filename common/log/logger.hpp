// Structured logs: a constant message and key-value pairs, one line a record. A Logger is passed by reference or copied
// (a copy shares the sink); there is no global one. Any thread. Lines go to a bounded queue and are written by a thread
// of the sink, so that a slow pipe never blocks an I/O thread; when the queue is full the oldest lines are dropped.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "common/base/error.hpp"
#include "common/base/result.hpp"

namespace penstock::log {

enum class Level : std::uint8_t {
  debug,  // decisions
  info,   // lifecycle
  warn,   // degraded but serving
  error,  // someone should act
};
std::string_view to_string(Level level);
Result<Level> parse_level(std::string_view text);

enum class Format : std::uint8_t { logfmt, json };
Result<Format> parse_format(std::string_view text);

/// One key-value pair. Holds views: it lives only as long as the call that logs it.
struct Field {
  using Value = std::variant<std::string_view, std::int64_t, std::uint64_t, double, bool>;

  template <class T>
  Field(std::string_view name, const T& content) : key(name), value(convert(content)) {}

  std::string_view key;
  Value value;

 private:
  template <class T>
  static Value convert(const T& content) {
    if constexpr (std::same_as<T, bool>) {
      return content;
    } else if constexpr (std::is_floating_point_v<T>) {
      return static_cast<double>(content);
    } else if constexpr (std::signed_integral<T>) {
      return static_cast<std::int64_t>(content);
    } else if constexpr (std::unsigned_integral<T>) {
      return static_cast<std::uint64_t>(content);
    } else {
      return std::string_view(content);
    }
  }
};
using Fields = std::initializer_list<Field>;

/// Where finished lines go.
class Sink {
 public:
  virtual ~Sink() = default;
  virtual void write(Level level, std::string_view line) = 0;  // without the line end
  virtual void flush() {}
};

struct Options {
  Level level = Level::info;
  Format format = Format::logfmt;
  std::string file;  // "" is stderr
};

class Logger {
 public:
  /// Logs nothing.
  Logger() = default;
  Logger(std::shared_ptr<Sink> sink, Level level, Format format);

  /// A logger that adds these fields to every line.
  Logger with(Fields fields) const;

  bool enabled(Level level) const { return sink_ != nullptr && level >= level_; }
  void debug(std::string_view message, Fields fields = {}) const { log(Level::debug, message, fields); }
  void info(std::string_view message, Fields fields = {}) const { log(Level::info, message, fields); }
  void warn(std::string_view message, Fields fields = {}) const { log(Level::warn, message, fields); }
  void error(std::string_view message, Fields fields = {}) const { log(Level::error, message, fields); }
  void log(Level level, std::string_view message, Fields fields = {}) const;
  void flush() const;

 private:
  std::shared_ptr<Sink> sink_;  // shared: components on several threads hold copies of the logger
  Level level_ = Level::info;
  Format format_ = Format::logfmt;
  std::string context_;  // already formatted fields of with()
};

/// The logger of a program: stderr or a file (appended to). Throws std::runtime_error with one sentence if the file
/// can't be opened.
Logger make_logger(const Options& options);

/// Keeps lines in memory, for tests. Any thread.
class MemorySink final : public Sink {
 public:
  void write(Level level, std::string_view line) override;
  std::vector<std::string> lines() const;
  /// Whether a line has all of these parts.
  bool contains(std::initializer_list<std::string_view> parts) const;

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
};

}  // namespace penstock::log
