#include "common/json/json.hpp"

#include <gtest/gtest.h>

#include "common/json/writer.hpp"

namespace penstock::json {
namespace {

std::string error_of(std::string_view text, const Limits& limits = {}) {
  auto parsed = parse(text, limits);
  return parsed ? "" : parsed.error().message;
}

TEST(JsonParse, ReadsAWholeDocument) {
  auto parsed = parse(R"({"a":[1,-2,3.5,true,null,"x\u0000y\ud83d\ude00"],"b":{"c":18446744073709551615}})");
  ASSERT_TRUE(parsed) << parsed.error().message;
  const Object& root = parsed->as_object();
  EXPECT_EQ(root.at("a").as_array().size(), 6u);
  EXPECT_EQ(root.at("a").as_array()[5].as_string(), boost::json::string_view("x\0y\xF0\x9F\x98\x80", 7));
  EXPECT_EQ(root.at("b").as_object().at("c").as_uint64(), 18446744073709551615ull);
}

TEST(JsonParse, SaysWhereTheTextIsWrong) {
  EXPECT_EQ(error_of(R"({"a": 1,})").substr(0, 24), "invalid JSON at byte 8: ");
  EXPECT_NE(error_of(R"({"a": 1)").find("ends too early"), std::string::npos);
  EXPECT_NE(error_of("").find("ends too early"), std::string::npos);
  EXPECT_EQ(error_of("1 2").substr(0, 23), "invalid JSON at byte 2:");
}

TEST(JsonParse, RefusesWhatReadersDisagreeOn) {
  for (std::string_view text :
       {"NaN",         "Infinity",     "-Infinity", "1e400",    "-1e400",    "01",      "+1",
        ".5",          "1.",           "'a'",       "{a:1}",    "[1,]",      "// c\n1", "\xEF\xBB\xBF{}",
        "\"\\ud800\"", "\"\xC0\xAF\"", "\"\xFF\"",  "\"a\nb\"", "\"\\x41\"", "tru",     "\"open"}) {
    EXPECT_FALSE(parse(text)) << text;
  }
  EXPECT_FALSE(parse(std::string_view("\"a\0b\"", 5)));
  EXPECT_TRUE(parse("-0"));
  EXPECT_TRUE(parse("1E-400"));
}

TEST(JsonParse, RefusesDuplicateKeysByName) {
  EXPECT_NE(error_of(R"({"model":"a","n":1,"model":"b"})").find(R"(duplicate key "model")"), std::string::npos);
  EXPECT_NE(error_of(R"([{"a":{"b":1,"b":2}}])").find(R"(duplicate key "b")"), std::string::npos);
  EXPECT_NE(error_of(R"({"a\u0062":1,"ab":2})").find("duplicate"), std::string::npos);
  EXPECT_EQ(error_of(R"({"a":{"a":{"a":1}},"b":{"a":1}})"), "");
}

TEST(JsonParse, FindsADuplicateAmongManyKeys) {
  std::string text = "{";
  for (int i = 0; i < 1000; ++i) text += "\"key" + std::to_string(i) + "\":{\"x\":1},";
  EXPECT_EQ(error_of(text + "\"last\":1}"), "");
  EXPECT_NE(error_of(text + "\"key500\":1}").find("duplicate key \"key500\""), std::string::npos);
}

TEST(JsonParse, StopsAtTheLimits) {
  auto nested = [](int depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_EQ(error_of(nested(64)), "");
  EXPECT_NE(error_of(nested(65)).find("nested deeper than 64"), std::string::npos);
  EXPECT_NE(error_of(std::string(100'000, '[')).find("nested deeper"), std::string::npos);
  EXPECT_NE(error_of("[1, 2]", {.text_bytes_max = 5}).find("longer than 5"), std::string::npos);
  EXPECT_EQ(error_of(R"([{"a":1},{"a":2}])", {.keys_max = 2}), "");
  EXPECT_NE(error_of(R"([{"a":1},{"a":2}])", {.keys_max = 1}).find("more than 1 keys"), std::string::npos);
  EXPECT_EQ(parse(nested(65)).error().code, ErrorCode::resource_exhausted);
}

TEST(JsonFields, ErrorsCarryThePath) {
  auto document = parse(R"({"messages":[{"role":"user"},{"role":"user"},{"role":7}],"n":"2"})");
  ASSERT_TRUE(document);
  const Path root;
  const Object& object = document->as_object();
  const Path messages = root.field("messages");
  auto list = required<const Array*>(object, "messages", root);
  ASSERT_TRUE(list);
  const Path third = messages.index(2);
  auto role = required<std::string_view>((**list)[2].as_object(), "role", third);
  ASSERT_FALSE(role);
  EXPECT_EQ(role.error().path, "messages[2].role");
  EXPECT_EQ(role.error().reason, "must be a string, is an integer");
  auto content = required<std::string_view>((**list)[2].as_object(), "content", third);
  EXPECT_EQ(content.error().path, "messages[2].content");
  EXPECT_EQ(static_cast<Error>(content.error()).message, "messages[2].content: is required");
  EXPECT_EQ(optional<std::int64_t>(object, "n", root).error().reason, "must be an integer, is a string");
}

TEST(JsonFields, IntegersAcceptOnlyIntegers) {
  auto document = parse(R"({"whole":3,"point":1.0,"huge":18446744073709551615,"minus":-1,"null":null})");
  const Object& object = document->as_object();
  const Path root;
  EXPECT_EQ(*required<std::int64_t>(object, "whole", root), 3);
  EXPECT_EQ(*required<double>(object, "whole", root), 3.0);
  EXPECT_FALSE(required<std::int64_t>(object, "point", root));
  EXPECT_FALSE(required<std::int64_t>(object, "huge", root));
  EXPECT_TRUE(required<std::uint64_t>(object, "huge", root));
  EXPECT_FALSE(required<std::uint64_t>(object, "minus", root));
  EXPECT_FALSE(optional<std::int64_t>(object, "null", root)->has_value());
  EXPECT_FALSE(optional<std::int64_t>(object, "absent", root)->has_value());
}

TEST(JsonFields, BoundsAreInclusive) {
  auto document = parse(R"({"temperature":2,"n":17})");
  const Object& object = document->as_object();
  const Path root;
  EXPECT_EQ(**optional<double>(object, "temperature", root, {0, 2}), 2.0);
  EXPECT_EQ(optional<double>(object, "temperature", root, {0, 1.5}).error().reason, "must be between 0 and 1.5");
  EXPECT_EQ(optional<std::int64_t>(object, "n", root, {1, 16}).error().reason, "must be between 1 and 16");
}

TEST(JsonWriter, EscapedTextReadsBackTheSame) {
  std::string text;
  for (int byte = 0; byte < 0x80; ++byte) text += static_cast<char>(byte);
  text += "é€😀\u2028\u2029";
  std::string out;
  append_quoted(out, text);
  EXPECT_EQ(out.find('\n'), std::string::npos);
  EXPECT_EQ(out.find("\u2028"), std::string::npos);
  auto back = parse(out);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(std::string(back->as_string()), text);
}

TEST(JsonWriter, BytesThatAreNotUtf8BecomeReplacements) {
  for (std::string_view text : {"\xFF", "a\xC3", "\xE2\x82", "\xED\xA0\x80", "\xC0\xAF", "\xF5\x80\x80\x80", "\x80z"}) {
    std::string out;
    append_quoted(out, text);
    EXPECT_TRUE(parse(out)) << out;
    EXPECT_NE(out.find("\xEF\xBF\xBD"), std::string::npos);
  }
}

TEST(JsonWriter, PutsCommasWhereTheyBelong) {
  std::string out;
  Writer w(out);
  w.begin_object();
  w.field("id", "x\"y");
  w.key("choices");
  w.begin_array();
  w.begin_object();
  w.field("index", 0);
  w.field("logprob", -0.5);
  w.field("flag", true);
  w.end_object();
  w.begin_array();
  w.end_array();
  w.value(nullptr);
  w.end_array();
  w.field("n", std::uint64_t{18446744073709551615ull});
  w.end_object();
  EXPECT_EQ(out,
            R"({"id":"x\"y","choices":[{"index":0,"logprob":-0.5,"flag":true},[],null],"n":18446744073709551615})");
}

TEST(JsonWriter, NumbersThatJsonLacksBecomeNull) {
  std::string out;
  append_number(out, std::numeric_limits<double>::quiet_NaN());
  append_number(out, std::numeric_limits<double>::infinity());
  EXPECT_EQ(out, "nullnull");
}

TEST(Escape, EveryByteIsSeenAtEveryPlaceOfALongText) {
  for (int byte = 0; byte < 128; ++byte) {
    std::string alone;
    append_escaped(alone, std::string(1, static_cast<char>(byte)));
    for (std::size_t place = 0; place < 20; ++place) {
      std::string text(19, 'x');
      text.insert(place, 1, static_cast<char>(byte));
      std::string escaped;
      append_escaped(escaped, text);
      EXPECT_EQ(escaped, std::string(place, 'x') + alone + std::string(19 - place, 'x')) << byte << " at " << place;
    }
  }
}

}  // namespace
}  // namespace penstock::json
