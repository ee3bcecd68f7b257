// Feeds files and folders to a fuzz target, for builds without libFuzzer: every seed must pass.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

// The file itself, and each of its beginnings up to a bound: most parsers fail at the end of what they were given.
std::size_t replay(const std::filesystem::path& path) {
  constexpr std::size_t prefixes_max = 4096;
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const auto* data = reinterpret_cast<const std::uint8_t*>(text.data());
  LLVMFuzzerTestOneInput(data, text.size());
  std::size_t count = 1;
  for (std::size_t size = 0; size < text.size() && size < prefixes_max; ++size, ++count) {
    LLVMFuzzerTestOneInput(data, size);
  }
  return count;
}

}  // namespace

int main(int argc, char** argv) {
  std::size_t count = 0;
  for (int i = 1; i < argc; ++i) {
    if (!std::filesystem::is_directory(argv[i])) {
      count += replay(argv[i]);
      continue;
    }
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) count += replay(entry.path());
  }
  std::printf("%zu inputs\n", count);
  return count > 0 ? 0 : 1;
}
