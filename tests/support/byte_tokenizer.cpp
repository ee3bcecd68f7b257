#include "tests/support/byte_tokenizer.hpp"

#include "common/json/writer.hpp"

namespace penstock::test {
namespace {

void append_utf8(unsigned code, std::string& out) {
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else {
    out += static_cast<char>(0xC0 | (code >> 6));
    out += static_cast<char>(0x80 | (code & 0x3F));
  }
}

// GPT-2's printable stand-ins for bytes.
std::string stand_in(unsigned byte) {
  const bool is_printable =
      (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
  static unsigned char order[256];
  static const bool is_filled = [] {
    unsigned next = 0;
    for (unsigned b = 0; b < 256; ++b) {
      const bool plain = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
      if (!plain) order[b] = static_cast<unsigned char>(next++);
    }
    return true;
  }();
  std::string out;
  append_utf8(is_printable ? byte : 256u + (is_filled ? order[byte] : 0u), out);
  return out;
}

void write_special(TokenId id, std::string_view content, json::Writer& writer) {
  writer.begin_object();
  writer.field("id", id);
  writer.field("content", content);
  for (const char* key : {"single_word", "lstrip", "rstrip", "normalized"}) writer.field(key, false);
  writer.field("special", true);
  writer.end_object();
}

}  // namespace

std::string byte_tokenizer_json(const std::vector<std::string>& more) {
  std::string out;
  json::Writer writer(out);
  writer.begin_object();
  writer.field("version", "1.0");
  writer.key("added_tokens");
  writer.begin_array();
  write_special(im_start, "<|im_start|>", writer);
  write_special(im_end, "<|im_end|>", writer);
  for (std::size_t i = 0; i < more.size(); ++i) {
    write_special(byte_vocabulary_size + static_cast<TokenId>(i), more[i], writer);
  }
  writer.end_array();
  const std::string_view byte_level =
      R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":false,"use_regex":true})";
  writer.key("pre_tokenizer");
  writer.raw(byte_level);
  writer.key("decoder");
  writer.raw(byte_level);
  writer.key("model");
  writer.begin_object();
  writer.field("type", "BPE");
  writer.key("vocab");
  writer.begin_object();
  for (unsigned byte = 0; byte < 256; ++byte) writer.field(stand_in(byte), byte);
  writer.end_object();
  writer.key("merges");
  writer.begin_array();
  writer.end_array();
  writer.end_object();
  writer.end_object();
  return out;
}

std::string_view chat_template_source() {
  return "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
         "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
}

}  // namespace penstock::test
