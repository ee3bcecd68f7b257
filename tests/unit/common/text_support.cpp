#include "tests/unit/common/text_support.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <stdexcept>

namespace penstock::text::test {

namespace {

std::string model_path() {
  if (const char* path = std::getenv("PENSTOCK_MODEL")) return path;
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const std::string base = cache != nullptr && *cache != '\0' ? cache : std::string(home ? home : "") + "/.cache";
  return base + "/penstock/models/SmolLM2-135M-Instruct.Q4_1.gguf";
}

/// Reads GGUF metadata that a test trusts to be whole; runs past the end throw.
class Reader {
 public:
  explicit Reader(const std::string& data) : data_(data) {}

  template <class T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string_view string() { return take(number<std::uint64_t>()); }
  std::string_view take(std::size_t bytes) {
    if (bytes > data_.size() - at_) throw std::runtime_error("the model's metadata is longer than this test reads");
    const std::string_view view = std::string_view(data_).substr(at_, bytes);
    at_ += bytes;
    return view;
  }

 private:
  const std::string& data_;
  std::size_t at_ = 0;
};

constexpr std::uint32_t type_string = 8, type_array = 9;
constexpr std::array<std::size_t, 13> type_bytes = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

void read_array(Reader& in, std::string_view key, VocabularyParts& parts) {
  const auto type = in.number<std::uint32_t>();
  const auto count = in.number<std::uint64_t>();
  if (type != type_string) {
    const std::string_view values = in.take(count * type_bytes.at(type));
    if (key != "tokenizer.ggml.token_type") return;
    parts.types.resize(count);
    std::memcpy(parts.types.data(), values.data(), values.size());
    return;
  }
  std::vector<std::string_view> texts;
  for (std::uint64_t i = 0; i < count; ++i) texts.push_back(in.string());
  if (key == "tokenizer.ggml.tokens") parts.tokens = std::move(texts);
  if (key == "tokenizer.ggml.merges") parts.merges = std::move(texts);
}

void read_scalar(std::string_view key, std::string_view value, VocabularyParts& parts) {
  const auto id = [&] {
    std::uint32_t number = 0;
    std::memcpy(&number, value.data(), value.size() < 4 ? value.size() : 4);
    return number;
  };
  if (key == "tokenizer.ggml.bos_token_id") parts.special.bos = id();
  if (key == "tokenizer.ggml.eos_token_id") parts.special.eos = id();
  if (key == "tokenizer.ggml.unknown_token_id") parts.special.unknown = id();
  if (key == "tokenizer.ggml.padding_token_id") parts.special.padding = id();
  if (key == "tokenizer.ggml.add_bos_token") parts.add_bos = id() != 0;
}

GgufVocabulary read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    throw std::runtime_error("the default model is not at " + path +
                             "; tests/run fetches it, or PENSTOCK_MODEL names another place");
  }
  GgufVocabulary result;
  result.data.resize(std::size_t{8} << 20);
  file.read(result.data.data(), static_cast<std::streamsize>(result.data.size()));
  Reader in(result.data);
  if (in.take(4) != "GGUF") throw std::runtime_error(path + " is not a GGUF file");
  in.take(4 + 8);
  for (auto left = in.number<std::uint64_t>(); left > 0; --left) {
    const std::string_view key = in.string();
    const auto type = in.number<std::uint32_t>();
    if (type == type_array) {
      read_array(in, key, result.parts);
    } else if (type == type_string) {
      const std::string_view value = in.string();
      if (key == "tokenizer.ggml.model") result.parts.model = value;
      if (key == "tokenizer.ggml.pre") result.parts.pre = value;
      if (key == "tokenizer.chat_template") result.chat_template = value;
    } else {
      read_scalar(key, in.take(type_bytes.at(type)), result.parts);
    }
  }
  return result;
}

std::shared_ptr<const Tokenizer> build(const VocabularyParts& parts) {
  auto tokenizer = Tokenizer::from_vocabulary(parts);
  if (!tokenizer) throw std::runtime_error(tokenizer.error().message);
  return *tokenizer;
}

std::string utf8(std::uint32_t code) {
  std::string out;
  if (code < 0x80) return {static_cast<char>(code)};
  const auto tail = [&](int shift) { out += static_cast<char>(0x80 | (code >> shift & 0x3F)); };
  if (code < 0x800) {
    out += static_cast<char>(0xC0 | code >> 6);
  } else if (code < 0x10000) {
    out += static_cast<char>(0xE0 | code >> 12);
    tail(6);
  } else {
    out += static_cast<char>(0xF0 | code >> 18);
    tail(12);
    tail(6);
  }
  tail(0);
  return out;
}

// The spelling of a byte in byte-level vocabularies.
std::string byte_spelling(int byte) {
  const auto plain = [](int b) { return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE; };
  if (plain(byte)) return utf8(static_cast<std::uint32_t>(byte));
  std::uint32_t code = 0x100;
  for (int b = 0; b < byte; ++b) code += plain(b) ? 0 : 1;
  return utf8(code);
}

}  // namespace

const GgufVocabulary& default_vocabulary() {
  static const GgufVocabulary vocabulary = read(model_path());
  return vocabulary;
}

std::shared_ptr<const Tokenizer> default_tokenizer() {
  static const std::shared_ptr<const Tokenizer> tokenizer = build(default_vocabulary().parts);
  return tokenizer;
}

std::shared_ptr<const Tokenizer> tokenizer_with_pre(std::string_view pre) {
  VocabularyParts parts = default_vocabulary().parts;
  parts.pre = pre;
  return build(parts);
}

std::shared_ptr<const Tokenizer> pairs_tokenizer(std::string_view pre) {
  static constexpr std::string_view bytes = "aLdsrevRE'\n\r\t 019!.-\xC3\xA9\xC5\xBF\xE4\xB8\xAD\xCC\x81\xD9\xA3";
  std::vector<std::string> owned;
  for (int byte = 0; byte < 256; ++byte) owned.push_back(byte_spelling(byte));
  std::vector<std::string> merges;
  for (const char a : bytes) {
    for (const char b : bytes) {
      const auto left = byte_spelling(static_cast<unsigned char>(a)),
                 right = byte_spelling(static_cast<unsigned char>(b));
      if (std::find(owned.begin() + 256, owned.end(), left + right) != owned.end()) continue;
      owned.push_back(left + right);
      merges.push_back(left + " " + right);
    }
  }
  owned.emplace_back("<|im_start|>");
  VocabularyParts parts;
  parts.model = "gpt2";
  parts.pre = pre;
  parts.tokens.assign(owned.begin(), owned.end());
  parts.types.assign(owned.size(), 1);
  parts.types.back() = 3;
  parts.merges.assign(merges.begin(), merges.end());
  parts.add_bos = false;
  return build(parts);
}

std::string pre_name(const ::testing::TestParamInfo<const char*>& pre) {
  std::string name = pre.param;
  std::erase(name, '-');
  return name;
}

std::uint32_t seed() {
  const char* text = std::getenv("PENSTOCK_SEED");
  return text != nullptr ? static_cast<std::uint32_t>(std::strtoul(text, nullptr, 10)) : 20251130;
}

std::string random_text(penstock::Random& random, std::size_t pieces) {
  static constexpr std::array<std::string_view, 40> fragments = {"a",
                                                                 "Ld",
                                                                 "hello",
                                                                 " world",
                                                                 "'s",
                                                                 "'S",
                                                                 "'re",
                                                                 "'VE",
                                                                 "'ll",
                                                                 "'",
                                                                 " '",
                                                                 "'\xC5\xBF",
                                                                 "\xC5\xBF",
                                                                 "  ",
                                                                 " ",
                                                                 "\n",
                                                                 "\r\n",
                                                                 "\t",
                                                                 "\n\n",
                                                                 "   \n",
                                                                 " \xC2\xA0",
                                                                 "\xE3\x80\x80",
                                                                 "0",
                                                                 "19",
                                                                 "2025",
                                                                 "12345678",
                                                                 "!",
                                                                 "...",
                                                                 " --",
                                                                 "\xC3\xA9",
                                                                 "e\xCC\x81",
                                                                 "\xE4\xB8\xAD\xE6\x96\x87\xE3\x80\x82",
                                                                 "\xD9\xA3",
                                                                 "\xC2\xBD",
                                                                 "\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x92\xBB",
                                                                 "<|im_start|>",
                                                                 "<|im_end|>",
                                                                 "<|im_",
                                                                 "\xE0\xA4\x95\xE0\xA5\x8D",
                                                                 "x = {y};"};
  std::string text;
  for (std::size_t i = 0; i < pieces; ++i) {
    if (random.below(12) != 0) {
      text += fragments[random.below(fragments.size())];
      continue;
    }
    std::uint32_t code = static_cast<std::uint32_t>(random.below(random.below(4) == 0 ? 0x110000 : 0x3000));
    if (code >= 0xD800 && code < 0xE000) code = 0x2028;
    text += utf8(code);
  }
  return text;
}

}  // namespace penstock::text::test
