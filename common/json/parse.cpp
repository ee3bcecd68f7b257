// The strict parser: Boost.JSON's grammar, driving a value stack, with our limits and a check for duplicate keys.
#include <algorithm>
#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/value_stack.hpp>
#include <cmath>
#include <utility>
#include <vector>

#include "common/json/json.hpp"
#include "common/json/parse_into.hpp"

namespace penstock::json {
namespace {

enum class Refusal : std::uint8_t { none, too_many_keys, duplicate_key, not_finite };

/// Receives the parser's events. Keys of open objects are kept in one text buffer, so that duplicates are found when
/// an object closes: by comparing pairs when there are few keys, by sorting when there are many.
struct Handler {
  constexpr static std::size_t max_object_size = static_cast<std::size_t>(-1);
  constexpr static std::size_t max_array_size = static_cast<std::size_t>(-1);
  constexpr static std::size_t max_key_size = static_cast<std::size_t>(-1);
  constexpr static std::size_t max_string_size = static_cast<std::size_t>(-1);

  using Code = boost::json::error_code;
  struct Key {
    std::size_t offset;
    std::size_t size;
  };

  Handler(std::size_t keys_max_, boost::json::storage_ptr storage) : keys_max(keys_max_) {
    stack.reset(std::move(storage));
  }

  bool refuse(Refusal reason, Code& code) {
    refusal = reason;
    code = boost::json::error::exception;  // any error stops the parser; `refusal` says what it was
    return false;
  }

  bool on_document_begin(Code&) { return true; }
  bool on_document_end(Code&) { return true; }
  bool on_array_begin(Code&) { return true; }
  bool on_array_end(std::size_t count, Code&) {
    stack.push_array(count);
    return true;
  }
  bool on_object_begin(Code&) { return true; }
  bool on_object_end(std::size_t count, Code& code) {
    if (has_duplicate(count)) return refuse(Refusal::duplicate_key, code);
    stack.push_object(count);
    if (count > 0) {
      key_text.resize(keys[keys.size() - count].offset);
      keys.resize(keys.size() - count);
    }
    return true;
  }
  bool on_string_part(boost::json::string_view part, std::size_t, Code&) {
    stack.push_chars(part);
    return true;
  }
  bool on_string(boost::json::string_view part, std::size_t, Code&) {
    stack.push_string(part);
    return true;
  }
  bool on_key_part(boost::json::string_view part, std::size_t, Code&) {
    key_text.append(part);
    stack.push_chars(part);
    return true;
  }
  bool on_key(boost::json::string_view part, std::size_t size, Code& code) {
    if (++key_count > keys_max) return refuse(Refusal::too_many_keys, code);
    key_text.append(part);
    keys.push_back({key_text.size() - size, size});
    stack.push_key(part);
    return true;
  }
  bool on_number_part(boost::json::string_view, Code&) { return true; }
  bool on_int64(std::int64_t number, boost::json::string_view, Code&) {
    stack.push_int64(number);
    return true;
  }
  bool on_uint64(std::uint64_t number, boost::json::string_view, Code&) {
    stack.push_uint64(number);
    return true;
  }
  bool on_double(double number, boost::json::string_view, Code& code) {
    if (!std::isfinite(number)) return refuse(Refusal::not_finite, code);
    stack.push_double(number);
    return true;
  }
  bool on_bool(bool flag, Code&) {
    stack.push_bool(flag);
    return true;
  }
  bool on_null(Code&) {
    stack.push_null();
    return true;
  }
  bool on_comment_part(boost::json::string_view, Code&) { return true; }
  bool on_comment(boost::json::string_view, Code&) { return true; }

  std::string_view text_of(const Key& key) const { return std::string_view(key_text).substr(key.offset, key.size); }

  bool has_duplicate(std::size_t count) {
    constexpr std::size_t pairwise_max = 24;
    const Key* first = keys.data() + (keys.size() - count);
    if (count <= pairwise_max) {
      for (std::size_t i = 1; i < count; ++i) {
        for (std::size_t j = 0; j < i; ++j) {
          if (first[i].size == first[j].size && text_of(first[i]) == text_of(first[j])) {
            duplicate = text_of(first[i]);
            return true;
          }
        }
      }
      return false;
    }
    std::vector<std::string_view> names;
    names.reserve(count);
    for (std::size_t i = 0; i < count; ++i) names.push_back(text_of(first[i]));
    std::sort(names.begin(), names.end());
    auto same = std::adjacent_find(names.begin(), names.end());
    if (same == names.end()) return false;
    duplicate = *same;
    return true;
  }

  boost::json::value_stack stack;
  std::string key_text;
  std::vector<Key> keys;
  std::size_t key_count = 0;
  std::size_t keys_max;
  Refusal refusal = Refusal::none;
  std::string duplicate;
};

Error syntax_error(std::size_t offset, std::string reason) {
  return make_error(ErrorCode::invalid_argument, "invalid JSON at byte " + std::to_string(offset) + ": " + reason);
}
Error limit_error(std::size_t offset, std::string reason) {
  return make_error(ErrorCode::resource_exhausted,
                    "JSON over a limit at byte " + std::to_string(offset) + ": " + reason);
}

Error describe(const boost::json::error_code& code, const Handler& handler, std::size_t offset, const Limits& limits) {
  switch (handler.refusal) {
    case Refusal::too_many_keys:
      return limit_error(offset, "more than " + std::to_string(limits.keys_max) + " keys");
    case Refusal::duplicate_key:
      return syntax_error(offset, "duplicate key \"" + handler.duplicate.substr(0, 64) + "\"");
    case Refusal::not_finite:
      return syntax_error(offset, "number out of range");
    case Refusal::none:
      break;
  }
  if (code == boost::json::error::too_deep) {
    return limit_error(offset, "nested deeper than " + std::to_string(limits.depth_max));
  }
  return syntax_error(offset, code == boost::json::error::incomplete ? "the text ends too early" : code.message());
}

}  // namespace

Result<Value> parse(std::string_view text, const Limits& limits) {
  return parse_into(text, limits, {});
}

Result<Value> parse_into(std::string_view text, const Limits& limits, boost::json::storage_ptr storage) {
  if (text.size() > limits.text_bytes_max) {
    return limit_error(limits.text_bytes_max, "longer than " + std::to_string(limits.text_bytes_max) + " bytes");
  }
  boost::json::parse_options options;
  options.max_depth = limits.depth_max;
  boost::json::basic_parser<Handler> parser(options, limits.keys_max, std::move(storage));
  boost::json::error_code code;
  std::size_t offset = parser.write_some(false, text.data(), text.size(), code);
  if (!code && offset < text.size()) code = boost::json::error::extra_data;
  if (code) return describe(code, parser.handler(), offset, limits);
  return parser.handler().stack.release();
}

}  // namespace penstock::json
