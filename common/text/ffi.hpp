// The C ABI of the Rust crate in rust/, private to this folder. Memory never changes owner: results and error
// sentences are copied by a sink while the call lasts. Panics become status `internal`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/base/error.hpp"
#include "common/base/result.hpp"
#include "common/text/chat_template.hpp"
#include "common/text/tokenizer.hpp"

namespace penstock::text::detail {

struct Slice {
  const std::uint8_t* data = nullptr;
  std::size_t size = 0;
};

struct Sink {
  void* context = nullptr;
  void (*write)(void* context, const void* data, std::size_t bytes) = nullptr;
};

enum class Status : std::int32_t { ok, invalid_argument, unsupported, resource_exhausted, internal };

struct RawParts {
  Slice model, pre;
  const Slice* tokens;
  std::size_t token_count;
  const std::int32_t* types;
  std::size_t type_count;
  const Slice* merges;
  std::size_t merge_count;
  std::int64_t prefix, suffix;
};

enum EncodeBits : std::uint32_t { encode_as_text = 1, encode_add_special = 2, encode_reference = 4 };

extern "C" {
Status penstock_text_tokenizer_from_json(Slice json, TokenizerHandle** out, Sink sink);
Status penstock_text_tokenizer_from_vocabulary(const RawParts* parts, TokenizerHandle** out, Sink sink);
void penstock_text_tokenizer_free(TokenizerHandle* handle);
Status penstock_text_encode(const TokenizerHandle* handle, Slice text, std::uint32_t options, std::uint64_t* work,
                            Sink sink);
Status penstock_text_tables(const TokenizerHandle* handle, Sink bytes, Sink offsets, Sink token_flags, Sink prefix,
                            Sink suffix, std::uint32_t* flags, Sink error);
std::int64_t penstock_text_find_token(const TokenizerHandle* handle, Slice spelling);
Status penstock_text_to_json(const TokenizerHandle* handle, Sink sink);
Status penstock_text_pieces(const TokenizerHandle* handle, Slice text, std::uint32_t options, const std::uint8_t* key,
                            Sink sink);
Status penstock_text_template_compile(Slice source, Slice constants, TemplateHandle** out, Sink sink);
void penstock_text_template_free(TemplateHandle* handle);
Status penstock_text_template_render(const TemplateHandle* handle, Slice variables, std::int64_t now, Sink sink);
void penstock_text_hash_blocks(const std::uint8_t* key, const std::uint8_t* parent, const std::uint32_t* tokens,
                               std::size_t count, std::size_t block_tokens, void* out);
Status penstock_text_keyed_digest(const std::uint8_t* key, Slice message, Sink sink);
}

inline Slice slice(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

/// Receives one result, or the sentence that says why there is none. Lives on the caller's stack.
class Receiver {
 public:
  Sink sink() { return {this, &Receiver::write}; }
  std::string take_text() { return std::move(bytes_); }
  template <class T>
  std::vector<T> take() const {
    static_assert(std::is_trivially_copyable_v<T>);
    std::vector<T> values(bytes_.size() / sizeof(T));
    if (!values.empty()) std::memcpy(values.data(), bytes_.data(), values.size() * sizeof(T));
    return values;
  }
  /// The error that came instead of a result.
  Error error(Status status);

 private:
  // An exception must not reach Rust, so running out of memory here ends the process.
  static void write(void* context, const void* data, std::size_t bytes) noexcept {
    static_cast<Receiver*>(context)->bytes_.assign(static_cast<const char*>(data), bytes);
  }
  std::string bytes_;
};

}  // namespace penstock::text::detail
