// Feeds files and folders to a fuzz target, for builds without libFuzzer: the seeds, their beginnings, and mutations of
// them drawn from a fixed random seed (PENSTOCK_SEED changes it). Bounded by counts and by time; prints what it ran.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "common/time/clock.hpp"
#include "common/time/random.hpp"
#include "tests/support/seed.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using penstock::Random;
using Input = std::vector<std::uint8_t>;

constexpr std::size_t prefixes_max = 4096;
constexpr std::size_t mutations_max = 100'000;
constexpr std::chrono::seconds time_max{4};

Input read_input(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return {text.begin(), text.end()};
}

// The input itself, and each of its beginnings: most parsers fail at the end of what they were given.
std::size_t replay(const Input& input) {
  LLVMFuzzerTestOneInput(input.data(), input.size());
  const std::size_t count = std::min(input.size(), prefixes_max);
  for (std::size_t size = 0; size < count; ++size) {
    const Input part(input.begin(), input.begin() + static_cast<std::ptrdiff_t>(size));  // its end is the heap's
    LLVMFuzzerTestOneInput(part.data(), part.size());
  }
  return count + 1;
}

// Values at which lengths, counts and offsets go wrong.
std::uint64_t edge_value(Random& random) {
  constexpr std::uint64_t edges[] = {0, 1, 0x7f, 0x80, 0xff, 0xffff, 0x7fffffff, 0xffffffff, 1ull << 62, ~0ull};
  return edges[random.below(std::size(edges))] - random.below(2);
}

void mutate_once(Input& input, const std::vector<Input>& seeds, Random& random) {
  const auto iterator = [&](std::size_t at) { return input.begin() + static_cast<std::ptrdiff_t>(at); };
  const std::size_t at = input.empty() ? 0 : random.below(input.size());
  const std::size_t length = std::min<std::size_t>(input.size() - at, 1 + random.below(16));
  switch (random.below(6)) {
    case 0:  // one bit
      if (!input.empty()) input[at] ^= static_cast<std::uint8_t>(1u << random.below(8));
      break;
    case 1:  // a little-endian edge value
      for (std::uint64_t value = edge_value(random), i = 0; i < std::min<std::size_t>(length, 8); ++i) {
        input[at + i] = static_cast<std::uint8_t>(value >> (8 * i));
      }
      break;
    case 2:
      input.erase(iterator(at), iterator(at + length));
      break;
    case 3: {
      const Input part(iterator(at), iterator(at + length));
      input.insert(iterator(at), part.begin(), part.end());
      break;
    }
    case 4:
      if (!input.empty()) input[at] = static_cast<std::uint8_t>(random.below(256));
      break;
    case 5: {  // the end of another seed
      const Input& other = seeds[random.below(seeds.size())];
      const std::size_t from = other.empty() ? 0 : random.below(other.size());
      input.resize(at);
      input.insert(input.end(), other.begin() + static_cast<std::ptrdiff_t>(from), other.end());
      break;
    }
  }
}

std::size_t mutate(const std::vector<Input>& seeds, std::uint64_t seed) {
  const penstock::SteadyClock clock;
  const penstock::TimePoint end = clock.now() + time_max;
  Random random(seed);
  std::size_t count = 0;
  for (; count < mutations_max && clock.now() < end; ++count) {
    Input input = seeds[random.below(seeds.size())];
    for (std::uint64_t left = 1 + random.below(4); left > 0; --left) mutate_once(input, seeds, random);
    LLVMFuzzerTestOneInput(input.data(), input.size());
  }
  return count;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::filesystem::path> paths;
  for (int i = 1; i < argc; ++i) {
    if (!std::filesystem::is_directory(argv[i])) {
      paths.emplace_back(argv[i]);
      continue;
    }
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());  // so that a seed means the same everywhere
  std::vector<Input> seeds;
  std::size_t replayed = 0;
  for (const std::filesystem::path& path : paths) {
    seeds.push_back(read_input(path));
    replayed += replay(seeds.back());
  }
  if (seeds.empty()) return 1;
  const std::uint64_t seed = penstock::first_seed();
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  std::fflush(stdout);
  const std::size_t mutations = mutate(seeds, seed);
  std::printf("%zu seeds and beginnings, %zu mutations\n", replayed, mutations);
  return 0;
}
