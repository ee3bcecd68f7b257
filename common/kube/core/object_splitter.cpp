#include "common/kube/core/object_splitter.hpp"

#include <algorithm>

namespace penstock::kube {
namespace {

constexpr std::size_t key_bytes_max = 32;

bool is_space(char c) {
  return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

Error malformed(std::string_view what) {
  return make_error(ErrorCode::data_loss, "not a stream of objects: " + std::string(what));
}

}  // namespace

bool ObjectSplitter::at_boundary() const {
  return shape_ == Shape::events ? where_ == Where::between : where_ == Where::done;
}

Result<std::optional<ObjectSplitter::Piece>> ObjectSplitter::next(std::string_view& input) {
  if (where_ == Where::between || where_ == Where::items) buffer_.clear();
  while (!input.empty()) {
    switch (where_) {
      case Where::between:
        PENSTOCK_TRY_VOID(scan_between(input));
        break;
      case Where::items:
        PENSTOCK_TRY_VOID(scan_items(input));
        break;
      case Where::object:
        if (auto piece = scan_object(input)) return piece;
        break;
      case Where::envelope: {
        PENSTOCK_TRY(auto piece, scan_envelope(input));
        if (piece) return piece;
        break;
      }
      case Where::done:
        if (!is_space(input[0])) return malformed("text after the list");
        input.remove_prefix(1);
        break;
    }
  }
  return std::optional<Piece>();
}

void ObjectSplitter::begin_object() {
  where_ = Where::object;
  depth_ = 0;
  oversized_ = false;
  buffer_.clear();
}

Result<void> ObjectSplitter::scan_between(std::string_view& input) {
  while (!input.empty() && is_space(input[0])) input.remove_prefix(1);
  if (input.empty()) return {};
  if (input[0] != '{') return malformed("an object must begin with '{'");
  if (shape_ == Shape::events)
    begin_object();
  else
    where_ = Where::envelope;
  return {};
}

Result<void> ObjectSplitter::scan_items(std::string_view& input) {
  while (!input.empty() && (is_space(input[0]) || input[0] == ',')) input.remove_prefix(1);
  if (input.empty()) return {};
  if (input[0] == '{') {
    begin_object();
    return {};
  }
  if (input[0] != ']') return malformed("an item of a list must be an object");
  where_ = Where::envelope;
  depth_ = 2;  // in the list's object and its array of items, which the envelope closes
  return {};
}

/// From `at`, which is inside a string, to behind its end. False if the end is not in the input.
bool ObjectSplitter::scan_string(std::string_view input, std::size_t& at) {
  while (at < input.size()) {
    if (escaped_) {
      escaped_ = false;
      ++at;
      continue;
    }
    // By hand: find_first_of() calls a function for each byte.
    std::size_t stop = at;
    while (stop < input.size() && input[stop] != '"' && input[stop] != '\\') ++stop;
    if (stop == input.size()) {
      at = stop;
      return false;
    }
    at = stop + 1;
    if (input[stop] == '"') {
      in_string_ = false;
      return true;
    }
    escaped_ = true;
  }
  return false;
}

std::optional<ObjectSplitter::Piece> ObjectSplitter::scan_object(std::string_view& input) {
  std::size_t at = 0;
  bool closed = false;
  while (at < input.size() && !closed) {
    if (in_string_) {
      scan_string(input, at);
      continue;
    }
    const char c = input[at++];
    if (c == '"') {
      in_string_ = true;
    } else if (c == '{' || c == '[') {
      ++depth_;
    } else if (c == '}' || c == ']') {
      closed = --depth_ == 0;
    }
  }
  const std::string_view part = input.substr(0, at);
  input.remove_prefix(at);
  if (oversized_ || buffer_.size() + part.size() > limits_.object_bytes_max) {
    oversized_ = true;
    buffer_ = std::string();
  } else if (!closed || !buffer_.empty()) {
    buffer_.append(part);
  }
  if (!closed) return std::nullopt;
  where_ = shape_ == Shape::events ? Where::between : Where::items;
  if (oversized_) return Piece{Piece::Kind::oversized, {}};
  return Piece{Piece::Kind::object, buffer_.empty() ? part : std::string_view(buffer_)};
}

Result<void> ObjectSplitter::to_envelope(std::string_view text) {
  if (envelope_.size() + text.size() > limits_.envelope_bytes_max)
    return malformed("the list's own fields are too long");
  envelope_.append(text);
  return {};
}

Result<std::optional<ObjectSplitter::Piece>> ObjectSplitter::scan_envelope(std::string_view& input) {
  std::size_t at = 0;
  bool items_begin = false, closed = false;
  while (at < input.size() && !items_begin && !closed) {
    if (in_string_) {
      const std::size_t start = at;
      const bool ended = scan_string(input, at);
      if (depth_ == 1 && last_key_.size() < key_bytes_max) {
        last_key_.append(input.substr(start, std::min(at - start - (ended ? 1 : 0), key_bytes_max)));
      }
      continue;
    }
    const char c = input[at++];
    if (c == '"') {
      in_string_ = true;
      if (depth_ == 1) last_key_.clear();
    } else if (c == '{' || c == '[') {
      items_begin = c == '[' && depth_ == 1 && last_key_ == "items";
      ++depth_;
    } else if (c == '}' || c == ']') {
      closed = --depth_ == 0;
    }
  }
  PENSTOCK_TRY_VOID(to_envelope(input.substr(0, at)));
  input.remove_prefix(at);
  if (items_begin) {
    where_ = Where::items;
    last_key_.clear();
  }
  if (!closed) return std::optional<Piece>();
  where_ = Where::done;
  return std::optional<Piece>(Piece{Piece::Kind::envelope, envelope_});
}

}  // namespace penstock::kube
