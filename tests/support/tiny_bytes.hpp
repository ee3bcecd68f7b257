// Values as the bytes of a file, for writers of tiny models. For tests only.
#pragma once

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

namespace penstock::test {

template <class T>
inline void put(std::string& out, const T& value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

inline void write_file(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary);
  file << bytes;
  if (!file.flush()) throw std::runtime_error("cannot write " + path.string());
}

}  // namespace penstock::test
