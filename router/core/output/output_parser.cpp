#include "router/core/output/output_parser.hpp"

#include "common/base/check.hpp"

namespace penstock::router {
namespace {

// Bytes at the end that begin a character whose rest has not come. What is no UTF-8 at all does not wait.
std::size_t unfinished_bytes(std::string_view text) {
  for (std::size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xC0) == 0x80) continue;
    const std::size_t size = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 1;
    return size > back ? back : 0;
  }
  return 0;
}

}  // namespace

std::unique_ptr<ToolParser> make_tool_parser(ToolFormat format, const ToolSet& tools) {
  switch (format) {
    case ToolFormat::none:
      break;
    case ToolFormat::hermes:
      return make_hermes_parser();
    case ToolFormat::llama3_json:
      return make_llama3_json_parser(tools);
    case ToolFormat::mistral:
      return make_mistral_parser();
    case ToolFormat::qwen3_coder:
      return make_qwen3_coder_parser(tools);
  }
  PENSTOCK_CHECK(false, "no format");
  return nullptr;
}

OutputParser::OutputParser(OutputOptions options)
    : options_(std::move(options)),
      writer_(options_.tools == ToolFormat::mistral ? CallIdStyle::nine_chars : CallIdStyle::long_hex, options_.id_seed,
              options_.calls_max),
      reasoning_(options_.reasoning) {
  if (options_.tools == ToolFormat::none) return;
  PENSTOCK_CHECK(options_.tool_set != nullptr);
  tools_ = make_tool_parser(options_.tools, *options_.tool_set);
  tools_->push(options_.opening, writer_);
}

void OutputParser::push(std::string_view text, OutputEvents& out) {
  if (is_full()) return;
  if (!unfinished_.empty()) {
    unfinished_ += text;
    const std::string joined = std::move(unfinished_);
    const std::size_t left = unfinished_bytes(joined);
    push_whole(std::string_view(joined).substr(0, joined.size() - left));
    unfinished_ = joined.substr(joined.size() - left);
  } else {
    const std::size_t left = unfinished_bytes(text);
    push_whole(text.substr(0, text.size() - left));
    unfinished_ = text.substr(text.size() - left);
  }
  writer_.take(out);
}

void OutputParser::push_whole(std::string_view text) {
  answer_.clear();
  reasoning_.push(text, writer_, answer_);
  if (answer_.empty()) return;
  if (tools_) {
    tools_->push(answer_, writer_);
  } else {
    writer_.content(answer_);
  }
}

void OutputParser::finish(OutputEvents& out) {
  if (!is_full()) {
    push_whole(unfinished_);
    answer_.clear();
    reasoning_.finish(writer_, answer_);
    if (tools_) {
      tools_->push(answer_, writer_);
      tools_->finish(writer_);
    } else {
      writer_.content(answer_);
    }
    writer_.finish();
  }
  unfinished_.clear();
  writer_.take(out);
}

}  // namespace penstock::router
