// A configuration file: settings or problems with their path, never a crash; what was taken is printed so that reading
// it again gives the same.
#include <array>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/base/check.hpp"
#include "common/config/load.hpp"
#include "tests/fuzz/input.hpp"

namespace penstock::fuzz {
namespace {

enum class Colour : std::uint8_t { red, green };
constexpr std::array<std::pair<std::string_view, Colour>, 2> colour_names{
    {{"red", Colour::red}, {"green", Colour::green}}};
std::span<const std::pair<std::string_view, Colour>> config_names(Colour) {
  return colour_names;
}

struct Inner {
  std::string name = "n";
  std::vector<std::string> words;
  std::vector<std::uint16_t> ports;
  void fields(config::Fields& f) {
    f.field("name", name, "");
    f.field("words", words, "");
    f.field("ports", ports, "");
  }
};

/// One setting of each kind.
struct Settings {
  bool flag = false;
  std::int64_t whole = -1;
  std::uint8_t small = 1;
  double real = 0.5;
  Duration time = std::chrono::seconds(1);
  config::ByteSize size{1024};
  Colour colour = Colour::red;
  std::filesystem::path path;
  std::optional<std::uint32_t> maybe;
  Inner inner;
  void fields(config::Fields& f) {
    f.field("flag", flag, "");
    f.field("whole", whole, "");
    f.field("small", small, "");
    f.field("real", real, "");
    f.field("time", time, "");
    f.field("size", size, "");
    f.field("colour", colour, "");
    f.field("path", path, "");
    f.field("maybe", maybe, "");
    f.section("inner", inner);
  }
};

}  // namespace
}  // namespace penstock::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace penstock;
  fuzz::Settings settings;
  config::Fields fields;
  settings.fields(fields);
  config::Problems problems;
  config::apply_yaml({reinterpret_cast<const char*>(data), size}, fields, problems);
  for (const std::string& problem : problems.list()) PENSTOCK_CHECK(!problem.empty());

  const std::string printed = config::to_yaml(fields);
  fuzz::Settings again;
  config::Fields again_fields;
  again.fields(again_fields);
  config::Problems none;
  config::apply_yaml(printed, again_fields, none);
  PENSTOCK_CHECK(none.empty(), none.to_string(), printed);
  PENSTOCK_CHECK(config::to_yaml(again_fields) == printed, config::to_yaml(again_fields), printed);
  return 0;
}
