#include <gtest/gtest.h>

#include <array>
#include <boost/json.hpp>
#include <fstream>
#include <sstream>
#include <thread>

#include "common/text/chat_template.hpp"
#include "tests/unit/common/text_support.hpp"

namespace penstock::text {
namespace {

constexpr std::int64_t now = 1'764'489'600;  // 2025-11-30 08:00 UTC, a Sunday

std::string render(std::string_view source, std::string_view variables = "{}") {
  const auto compiled = ChatTemplate::compile(source);
  if (!compiled) return "compile: " + compiled.error().message;
  const auto text = compiled->render(variables, now);
  return text ? *text : "error: " + text.error().message;
}

TEST(ChatTemplate, RendersTheReferencePrompts) {
  std::ifstream file("tests/data/tokenizer/smollm2.json");
  std::stringstream data;
  data << file.rdbuf();
  const auto compiled = ChatTemplate::compile(test::default_vocabulary().chat_template).value();
  int chats = 0;
  const boost::json::value entries = boost::json::parse(data.str());
  for (const auto& entry : entries.as_array()) {
    if (!entry.as_object().contains("messages")) continue;
    const boost::json::object variables{{"messages", entry.at("messages")}, {"add_generation_prompt", true}};
    EXPECT_EQ(compiled.render(boost::json::serialize(variables), now).value(), entry.at("text").as_string());
    ++chats;
  }
  EXPECT_EQ(chats, 6);
}

TEST(ChatTemplate, TrimsBlocksAsTransformersDoes) {
  EXPECT_EQ(
      render("{% for x in xs %}\n  {% if x %}\n{{ x }},\n  {% endif %}\n{% endfor %}\nend\n", R"({"xs":[1,0,2]})"),
      "1,\n2,\nend");
}

TEST(ChatTemplate, WritesJsonAsPythonDoes) {
  EXPECT_EQ(render("{{ v | tojson }}", R"({"v":{"b":[1,2.0,true,null],"a":"<é'\"\n>"}})"),
            R"({"b": [1, 2.0, true, null], "a": "<é'\"\n>"})");
  EXPECT_EQ(render("{{ v | tojson(indent=2) }}", R"({"v":{"a":[1,{}],"b":[]}})"),
            "{\n  \"a\": [\n    1,\n    {}\n  ],\n  \"b\": []\n}");
  EXPECT_EQ(render("{{ v | tojson(sort_keys=true, separators=[',', ':']) }}", R"({"v":{"b":1,"a":1e20}})"),
            R"({"a":1e+20,"b":1})");
  EXPECT_EQ(render("{{ v | tojson(ensure_ascii=true) }}", R"({"v":"é😀"})"), R"("\u00e9\ud83d\ude00")");
}

TEST(ChatTemplate, PrintsValuesAsPythonDoes) {
  EXPECT_EQ(render("{{ a }} {{ b }} {{ c }} {{ d }}", R"({"a":true,"b":null,"c":[1,"x",false],"d":{"k":1.5}})"),
            "True None [1, 'x', False] {'k': 1.5}");
  EXPECT_EQ(render("{{ missing }}|{{ x | string }}", R"({"x":true})"), "|True");
}

TEST(ChatTemplate, HasPythonsMethodsAndTransformersFunctions) {
  EXPECT_EQ(render("{{ s.strip().upper() }}{% if s.startswith(' a') %}!{% endif %}{{ m.items() | list | length }}",
                   R"({"s":" ab ","m":{"x":1}})"),
            "AB!1");
  EXPECT_EQ(render("{{ strftime_now('%d %b %Y') }}"), "30 Nov 2025");
  EXPECT_EQ(render("{{ strftime_now('%A %B %H:%M:%S') }}"), "Sunday November 08:00:00");
  EXPECT_EQ(render("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}"), "01");
  EXPECT_EQ(render("a{% generation %}b{%- endgeneration -%}  c"), "abc");
  EXPECT_EQ(render("{% set ns = namespace(n=0) %}{% for i in [1,2] %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}"),
            "3");
}

TEST(ChatTemplate, SaysWhatIsWrong) {
  EXPECT_NE(render("{% if %}").find("compile: "), std::string::npos);
  EXPECT_NE(render("{{ raise_exception('roles must alternate') }}").find("roles must alternate"), std::string::npos);
  EXPECT_NE(render("{{ missing.field }}").find("error: "), std::string::npos);
  EXPECT_NE(render("x", "[]").find("not a JSON object"), std::string::npos);
  EXPECT_NE(render("x", "{").find("not JSON"), std::string::npos);
  EXPECT_NE(render("{{ strftime_now('%Q') }}").find("%Q"), std::string::npos);
  EXPECT_NE(render("{% include 'file' %}").find("error: "), std::string::npos);
  EXPECT_FALSE(ChatTemplate::compile("\xFF"));
}

TEST(ChatTemplate, StopsRunawayTemplates) {
  const auto code = [](std::string_view source, std::string_view variables = "{}") {
    return ChatTemplate::compile(source).value().render(variables, now).error().code;
  };
  EXPECT_EQ(code("{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}"),
            ErrorCode::resource_exhausted);
  EXPECT_EQ(code("{% for a in range(90000) %}{{ s }}{% endfor %}", "{\"s\":\"" + std::string(1000, 'x') + "\"}"),
            ErrorCode::resource_exhausted);
  EXPECT_NE(render("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}").find("error: "), std::string::npos);
}

TEST(ChatTemplate, ManyThreadsMayRender) {
  const auto compiled = ChatTemplate::compile("{% for m in messages %}{{ m.content }}{% endfor %}").value();
  std::vector<std::jthread> threads;
  std::array<int, 4> wrong{};
  for (std::size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&compiled, &wrong, t] {
      const std::string content = std::to_string(t);
      for (int i = 0; i < 200; ++i) {
        const auto text = compiled.render(R"({"messages":[{"content":")" + content + "\"}]}", now);
        wrong[t] += text && *text == content ? 0 : 1;
      }
    });
  }
  threads.clear();
  EXPECT_EQ(wrong, (std::array<int, 4>{}));
}

}  // namespace
}  // namespace penstock::text
