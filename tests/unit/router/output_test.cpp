// Text of a choice to content, reasoning and calls: each format as its models write it, faults that other servers had,
// and the same result however the text is cut.
#include <gtest/gtest.h>

#include "common/json/json.hpp"
#include "common/json/writer.hpp"
#include "common/time/random.hpp"
#include "router/core/output/json_call.hpp"
#include "router/core/output/output_parser.hpp"
#include "tests/support/seed.hpp"

namespace penstock::router {
namespace {

using Begin = ReasoningSplit::Begin;

std::shared_ptr<const ToolSet> tools() {
  static const auto set = [] {
    const auto functions = json::parse(R"([
      {"name":"weather","parameters":{"properties":{"city":{"type":"string"},"days":{"type":"integer"},
        "unit":{"type":["string","null"]},"where":{"type":"object"},"free":{},"any":{"anyOf":[{"type":"string"},
        {"type":"number"}]},"is_long":{"type":"boolean"}}}},
      {"name":"time"}])");
    auto made = std::make_shared<ToolSet>();
    for (const auto& function : functions->get_array()) {
      const auto& object = function.get_object();
      made->add(std::string_view(object.at("name").get_string()), object);
    }
    return std::shared_ptr<const ToolSet>(std::move(made));
  }();
  return set;
}

struct Format {
  ToolFormat tools = ToolFormat::none;
  Begin reasoning = Begin::no_thought;
  std::uint32_t calls_max = 0;
  std::string opening;
};

OutputParser parser(const Format& format) {
  OutputOptions options;
  options.tools = format.tools;
  options.reasoning = format.reasoning;
  options.tool_set = tools();
  options.calls_max = format.calls_max;
  options.opening = format.opening;
  options.id_seed = 7;
  return OutputParser(std::move(options));
}

/// content, <reasoning>, name(arguments), in order.
std::string describe(const OutputEvents& events) {
  std::string out;
  bool in_call = false;
  for (const auto& event : events) {
    if (in_call && event.kind != OutputEvent::Kind::arguments) out += ")";
    if (event.kind != OutputEvent::Kind::arguments) in_call = false;
    switch (event.kind) {
      case OutputEvent::Kind::content:
        out += "[" + event.text + "]";
        break;
      case OutputEvent::Kind::reasoning:
        out += "<" + event.text + ">";
        break;
      case OutputEvent::Kind::call:
        out += std::to_string(event.call) + ":" + event.text + "(";
        in_call = true;
        break;
      case OutputEvent::Kind::arguments:
        out += event.text;
        break;
    }
  }
  return in_call ? out + ")" : out;
}

OutputEvents read(const Format& format, const std::vector<std::string_view>& pieces) {
  OutputParser one = parser(format);
  OutputEvents events;
  for (const auto piece : pieces) one.push(piece, events);
  one.finish(events);
  return events;
}

std::string read_whole(const Format& format, std::string_view text) {
  return describe(read(format, {text}));
}

const Format hermes{ToolFormat::hermes};
const Format llama{ToolFormat::llama3_json};
const Format mistral{ToolFormat::mistral};
const Format coder{ToolFormat::qwen3_coder};
const Format thinking_hermes{ToolFormat::hermes, Begin::perhaps};

struct Sample {
  const char* what;
  Format format;
  std::string text;
  std::string expected;
};

const std::vector<Sample>& corpus() {
  static const std::vector<Sample> samples{
      {"plain text", hermes, "Hello, wörld. 2 < 3 </tool_call> \n", "[Hello, wörld. 2 < 3 </tool_call> \n]"},
      {"one call", hermes, "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Köln\"}}\n</tool_call>",
       "0:weather({\"city\": \"Köln\"})"},
      {"text before, between and after", hermes,
       "I look.\n<tool_call>{\"name\":\"time\",\"arguments\":{}}</tool_call>\nand\n"
       "<tool_call>{\"name\":\"weather\",\"arguments\":{\"days\":[1,{\"a\":\"}\"}]}}</tool_call> Done.",
       "[I look.]0:time({})[\nand]1:weather({\"days\":[1,{\"a\":\"}\"}]})[ Done.]"},
      {"arguments before the name", hermes,
       R"(<tool_call>{"arguments": {"city": "\"}\\"}, "id": 7, "name": "weather"}</tool_call>)",
       R"(0:weather({"city": "\"}\\"}))"},
      {"arguments as a string once more", hermes,
       R"(<tool_call>{"name": "weather", "arguments": "{\"city\": \"\u00c4\"}"}</tool_call>)",
       "0:weather({\"city\": \"Ä\"})"},
      {"no arguments", hermes,
       R"(<tool_call>{"name": "time"}</tool_call><tool_call>{"name":"time","arguments":null}</tool_call>)",
       "0:time({})1:time({})"},
      {"a marker within a string", hermes,
       R"(<tool_call>{"name":"weather","arguments":{"city":"</tool_call><tool_call>"}}</tool_call>)",
       R"(0:weather({"city":"</tool_call><tool_call>"}))"},
      {"no closing marker", hermes,
       R"(<tool_call>{"name":"time","arguments":{}}<tool_call>{"name":"time","arguments":{}})", "0:time({})1:time({})"},
      {"a bracket too few", hermes, "<tool_call>{\"name\":\"time\",\"arguments\":{}\n</tool_call>ok", "0:time({})[ok]"},
      {"a bracket too many", hermes, "<tool_call>{\"name\":\"time\",\"arguments\":{}}}\n</tool_call>ok",
       "0:time({})[ok]"},
      {"brackets left open in the arguments", hermes,
       "<tool_call>{\"name\":\"weather\",\"arguments\":{\"where\":{\"x\":1}</tool_call>ok",
       "0:weather({\"where\":{\"x\":1})[ok]"},
      {"no JSON", hermes, "<tool_call>weather(city)</tool_call>", "[<tool_call>weather(city)</tool_call>]"},
      {"JSON that is no call", hermes, "<tool_call> {\"nam\": 1}</tool_call>",
       "[<tool_call> {\"nam\": 1}</tool_call>]"},
      {"broken, then a good one", hermes,
       "<tool_call>{\"name\": 5</tool_call><tool_call>{\"name\":\"time\",\"arguments\":{}}</tool_call>",
       "[<tool_call>{\"name\": 5</tool_call>]0:time({})"},
      {"cut within the name", hermes, "<tool_call>{\"name\": \"wea", "[<tool_call>{\"name\": \"wea]"},
      {"cut within the arguments", hermes, "<tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": \"K",
       "0:weather({\"city\": \"K)"},
      {"cut within the marker", hermes, "ab <tool_", "[ab <tool_]"},
      {"a name that no tool has", hermes, "<tool_call>{\"name\":\"other\",\"arguments\":{}}</tool_call>",
       "0:other({})"},
      {"single quotes, as Python prints", hermes, "<tool_call>{'name': 'time'}</tool_call>",
       "[<tool_call>{'name': 'time'}</tool_call>]"},
      {"Llama", llama, "{\"name\": \"weather\", \"parameters\": {\"city\": \"Rom\"}}",
       "0:weather({\"city\": \"Rom\"})"},
      {"Llama, tagged, with a type", llama,
       "<|python_tag|>{\"type\": \"function\", \"name\": \"time\", \"parameters\": {}}", "0:time({})"},
      {"Llama, two calls", llama,
       "\n{\"name\": \"time\", \"parameters\": {}}; {\"name\": \"weather\", \"parameters\": {\"days\": 1}}\n",
       "0:time({})1:weather({\"days\": 1})"},
      {"Llama, JSON that was asked for", llama, "{\"name\": \"Ada\", \"parameters\": {\"age\": 36}}",
       "[{\"name\": \"Ada\", \"parameters\": {\"age\": 36}}]"},
      {"Llama, JSON within text", llama, "So: {\"name\": \"time\", \"parameters\": {}}",
       "[So: {\"name\": \"time\", \"parameters\": {}}]"},
      {"Llama, code after the tag", llama, "<|python_tag|>print(1)", "[<|python_tag|>print(1)]"},
      {"Llama, text after a call", llama, "{\"name\": \"time\", \"parameters\": {}} is my call",
       "0:time({})[ is my call]"},
      {"Mistral", mistral,
       "[TOOL_CALLS][{\"name\": \"time\", \"arguments\": {}}, {\"name\": \"weather\", \"arguments\": {\"city\": "
       "\"]\"}}]",
       "0:time({})1:weather({\"city\": \"]\"})"},
      {"Mistral, one object", mistral, "Yes.[TOOL_CALLS] {\"name\": \"time\", \"arguments\": {}}", "[Yes.]0:time({})"},
      {"Mistral, newer", mistral, "[TOOL_CALLS]weather[ARGS]{\"city\": \"Y\"}[TOOL_CALLS]time[CALL_ID]a1b2[ARGS]{}",
       "0:weather({\"city\": \"Y\"})1:time({})"},
      {"Mistral, newer, without a marker", mistral, "[TOOL_CALLS]weather{\"city\": \"Y\"}",
       "0:weather({\"city\": \"Y\"})"},
      {"Mistral, no call", mistral, "[TOOL_CALLS] are [ARGS] what", "[[TOOL_CALLS] are [ARGS] what]"},
      {"Mistral, an empty list", mistral, "[TOOL_CALLS][]", "[[TOOL_CALLS][]]"},
      {"Mistral, cut", mistral, "[TOOL_CALLS]weather[AR", "[[TOOL_CALLS]weather[AR]"},
      {"Coder", coder,
       "<tool_call>\n<function=weather>\n<parameter=city>\nK\"ö\"ln\nam Rhein\n</parameter>\n<parameter=days>\n3\n"
       "</parameter>\n</function>\n</tool_call>",
       "0:weather({\"city\": \"K\\\"ö\\\"ln\\nam Rhein\", \"days\": 3})"},
      {"Coder, kinds of values", coder,
       "<function=weather><parameter=city>5</parameter><parameter=days>five</parameter><parameter=unit>null</parameter>"
       "<parameter=where>{\"a\": [1]}</parameter><parameter=free>7</parameter><parameter=any>1.50</parameter>"
       "<parameter=is_long>True</parameter><parameter=new>[1]</parameter></function>",
       "0:weather({\"city\": \"5\", \"days\": \"five\", \"unit\": null, \"where\": {\"a\": [1]}, \"free\": \"7\", "
       "\"any\": 1.50, \"is_long\": true, \"new\": [1]})"},
      {"Coder, no parameters", coder, "Hm <tool_call><function=time></function></tool_call> ok", "[Hm]0:time({})[ ok]"},
      {"Coder, tags within a value", coder, "<function=weather><parameter=city></function><b></parameter></function>",
       "0:weather({\"city\": \"</function><b>\"})"},
      {"Coder, no closing of the function", coder,
       "<tool_call><function=weather><parameter=city>x</parameter></tool_call>ok", "0:weather({\"city\": \"x\"})[ok]"},
      {"Coder, no call", coder, "<tool_call>{\"name\":1}</tool_call> <function=\n",
       "[<tool_call>{\"name\":1}</tool_call> <function=\n]"},
      {"Coder, cut within a value", coder, "<function=weather><parameter=city>Kö", "0:weather({\"city\": \"Kö)"},
      {"Coder, cut within a number", coder, "<function=weather><parameter=days>1", "0:weather({\"days\": 1)"},
      {"thought and answer",
       {ToolFormat::none, Begin::perhaps},
       "<think>\nHm, <b>.\n</think>\n\nHi <think>",
       "<Hm, <b>.>[Hi <think>]"},
      {"thought that the prompt opened", {ToolFormat::none, Begin::in_thought}, "Hm.\n</think>\n\nHi", "<Hm.>[Hi]"},
      {"thought that both opened", {ToolFormat::none, Begin::in_thought}, "\n<think>Hm.</think>Hi", "<Hm.>[Hi]"},
      {"no thought", {ToolFormat::none, Begin::perhaps}, " \nHi </think> there", "[ \nHi </think> there]"},
      {"empty thought", {ToolFormat::none, Begin::perhaps}, "<think>\n\n</think>\n\nHi", "[Hi]"},
      {"thought without end", {ToolFormat::none, Begin::perhaps}, "<think>Hm </thin", "<Hm </thin>"},
      {"thought and call", thinking_hermes,
       "<think>I call <tool_call>{\"name\":\"x\"}</tool_call> now.</think>\n\n<tool_call>\n{\"name\": \"time\", "
       "\"arguments\": {}}\n</tool_call>",
       "<I call <tool_call>{\"name\":\"x\"}</tool_call> now.>0:time({})"},
      {"only the first call",
       {ToolFormat::hermes, Begin::no_thought, 1},
       "<tool_call>{\"name\":\"time\",\"arguments\":{}}</tool_call><tool_call>{\"name\":\"time\",\"arguments\":{}}",
       "0:time({})"},
      {"opened by the prompt",
       {ToolFormat::hermes, Begin::no_thought, 1, "<tool_call>\n{\"name\": \"time\", \"arguments\": {"},
       "\"a\": 1}}\n</tool_call>",
       "0:time({\"a\": 1})"},
      {"opened by the prompt, Coder",
       {ToolFormat::qwen3_coder, Begin::no_thought, 1, "<tool_call>\n<function=time>\n"},
       "</function>",
       "0:time({})"},
      {"opened by the prompt, Mistral",
       {ToolFormat::mistral, Begin::no_thought, 1, "[TOOL_CALLS]time[ARGS]{"},
       "}",
       "0:time({})"},
      {"opened by the prompt, Llama",
       {ToolFormat::llama3_json, Begin::no_thought, 1, "{\"name\": \""},
       "time\", \"parameters\": {}}",
       "0:time({})"},
  };
  return samples;
}

TEST(OutputParser, ReadsWhatModelsWrite) {
  for (const auto& sample : corpus()) {
    EXPECT_EQ(read_whole(sample.format, sample.text), sample.expected) << sample.what;
  }
}

TEST(OutputParser, EveryCutGivesTheSame) {
  for (const auto& sample : corpus()) {
    const std::string_view text = sample.text;
    const OutputEvents whole = read(sample.format, {text});
    for (std::size_t at = 0; at <= text.size(); ++at) {
      ASSERT_EQ(read(sample.format, {text.substr(0, at), text.substr(at)}), whole) << sample.what << " cut at " << at;
    }
    std::vector<std::string_view> bytes;
    for (std::size_t at = 0; at < text.size(); ++at) bytes.push_back(text.substr(at, 1));
    ASSERT_EQ(read(sample.format, bytes), whole) << sample.what << " byte by byte";
  }
}

TEST(OutputParser, MixturesOfMarkersGiveTheSameInAnyCuts) {
  const std::vector<std::string> parts{"<tool_call>",
                                       "</tool_call>",
                                       "<function=time>",
                                       "</function>",
                                       "<parameter=a>",
                                       "</parameter>",
                                       "[TOOL_CALLS]",
                                       "[ARGS]",
                                       "[",
                                       "{\"name\": \"time\", ",
                                       "\"arguments\": ",
                                       "{\"a\": \"b\\\"\"}",
                                       "}",
                                       "]",
                                       "\"",
                                       "\\",
                                       "<think>",
                                       "</think>",
                                       "\n",
                                       " ",
                                       "time",
                                       "é",
                                       "<",
                                       ";",
                                       "<|python_tag|>",
                                       "null",
                                       ","};
  const std::uint64_t seed = first_seed();
  Random random(seed);
  for (int round = 0; round < 3'000; ++round) {
    std::string text;
    for (std::uint64_t left = 1 + random.below(24); left > 0; --left) text += parts[random.below(parts.size())];
    Format format;
    format.tools = static_cast<ToolFormat>(random.below(5));
    format.reasoning = static_cast<Begin>(random.below(3));
    format.calls_max = static_cast<std::uint32_t>(random.below(2));
    std::vector<std::string_view> pieces;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t size = 1 + random.below(5);
      pieces.push_back(std::string_view(text).substr(at, size));
      at += size;
    }
    ASSERT_EQ(read(format, pieces), read(format, {text})) << "PENSTOCK_SEED=" << seed << ": " << text;
  }
}

TEST(OutputParser, ArgumentsComeAsTheyAreWritten) {
  OutputParser one = parser(hermes);
  OutputEvents events;
  one.push("<tool_call>{\"name\": \"weather\", \"arguments\": {\"ci", events);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].text, "weather");
  EXPECT_TRUE(events[0].id.starts_with("call_")) << events[0].id;
  EXPECT_EQ(events[0].id.size(), 29u);
  EXPECT_EQ(events[1].text, "{\"ci");
  events.clear();
  one.push("ty\": 1.0e0", events);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].text, "ty\": 1.0e0") << "never written anew";
}

TEST(OutputParser, TextIsHeldOnlyWhileItMayBecomeAMarker) {
  OutputParser one = parser(hermes);
  OutputEvents events;
  one.push("a < b", events);
  EXPECT_EQ(describe(events), "[a < b]");
  one.push("<tool", events);
  EXPECT_EQ(describe(events), "[a < b]");
  one.push("s", events);
  EXPECT_EQ(describe(events), "[a < b<tools]");
}

TEST(OutputParser, StringValuesOfCoderAreStreamed) {
  OutputParser one = parser(coder);
  OutputEvents events;
  one.push("<tool_call>\n<function=weather>\n<parameter=city>\nline one\nline", events);
  EXPECT_EQ(describe(events), "0:weather({\"city\": \"line one\\nline)");
}

TEST(OutputParser, IdsAreWhatTemplatesTakeBack) {
  const OutputEvents events = read(mistral, {"[TOOL_CALLS]time{}[TOOL_CALLS]time{}"});
  ASSERT_EQ(events.size(), 4u);
  for (const std::size_t at : {0u, 2u}) {
    EXPECT_EQ(events[at].id.size(), 9u);
    for (const char c : events[at].id) EXPECT_TRUE(std::isalnum(static_cast<unsigned char>(c))) << events[at].id;
  }
  EXPECT_NE(events[0].id, events[2].id);
}

TEST(OutputParser, WhatIsHeldIsBounded) {
  OutputParser one = parser(hermes);
  OutputEvents events;
  one.push("<tool_call>{\"arguments\":{\"a\":\"", events);
  const std::string block(64 << 10, 'x');
  for (int i = 0; i < 3; ++i) one.push(block, events);
  EXPECT_TRUE(events.empty()) << "the name may still come";
  for (int i = 0; i < 2; ++i) one.push(block, events);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, OutputEvent::Kind::content);
  EXPECT_EQ(events[0].text.size(), 30u + 5 * block.size()) << "nothing is lost";
  EXPECT_EQ(JsonCall::held_bytes_max, 256u << 10);
}

TEST(OutputParser, LongRunsOfWhiteSpacePass) {
  OutputParser one = parser(hermes);
  OutputEvents events;
  for (int i = 0; i < 1'000; ++i) one.push(" ", events);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].text.size(), 1'000u);
  EXPECT_EQ(OutputWriter::space_bytes_max, 256u);
}

TEST(OutputParser, HostileTextTakesLinearTime) {
  const std::string open(1 << 20, '{');
  EXPECT_EQ(read_whole(hermes, "<tool_call>{\"name\":\"time\",\"arguments\":" + open).size(), open.size() + 8);
  std::string markers;
  for (int i = 0; i < 100'000; ++i) markers += "<tool_call>";
  EXPECT_EQ(read_whole(hermes, markers), "[" + markers + "]");
  std::string partial;
  for (int i = 0; i < 200'000; ++i) partial += "<tool_";
  EXPECT_EQ(read_whole(coder, partial), "[" + partial + "]");
  const std::string code = "<function=weather><parameter=days>__import__('os').system('true')</parameter></function>";
  EXPECT_EQ(read_whole(coder, code), "0:weather({\"days\": \"__import__('os').system('true')\"})");
}

TEST(Formats, AreRecognisedByTheTemplate) {
  const auto shown = [](std::string_view source) { return choose_formats(source, {}); };
  EXPECT_EQ(shown("{{ '<tool_call>' }} {{ '<think>' }}").tools, ToolFormat::hermes);
  EXPECT_EQ(shown("{{ '<tool_call>' }} {{ '</think>' }}").reasoning, ReasoningFormat::think);
  EXPECT_EQ(shown("<tool_call>\n<function=").tools, ToolFormat::qwen3_coder);
  EXPECT_EQ(shown("[TOOL_CALLS]").tools, ToolFormat::mistral);
  EXPECT_EQ(shown("<|python_tag|>").tools, ToolFormat::llama3_json);
  EXPECT_EQ(shown("{\"name\": function name, \"parameters\": dictionary of argument name and its value}").tools,
            ToolFormat::llama3_json);
  EXPECT_EQ(shown("<tool_call>{{ name }}<arg_key>").tools, ToolFormat::none) << "no parser here reads it";
  EXPECT_EQ(shown("{{ messages }}").tools, ToolFormat::none);
  EXPECT_EQ(shown("{{ messages }}").reasoning, ReasoningFormat::none);
  EXPECT_EQ(choose_formats("<tool_call>", {ToolFormat::none, ReasoningFormat::think}).tools, ToolFormat::none);
  EXPECT_EQ(choose_formats("", {ToolFormat::mistral, {}}).opening.before_name.substr(0, 12), "[TOOL_CALLS]");
  EXPECT_FALSE(tool_format("hermes2"));
  EXPECT_EQ(tool_format("qwen3_coder"), ToolFormat::qwen3_coder);
  EXPECT_EQ(to_string(ReasoningFormat::think), "think");
  EXPECT_TRUE(ends_in_thought("<|im_start|>assistant\n<think>\n"));
  EXPECT_FALSE(ends_in_thought("<think>\n\n</think>\n\n"));
}

}  // namespace
}  // namespace penstock::router
