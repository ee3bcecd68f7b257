// API keys of tests, and a folder for files that routers read.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include "common/digest/digest.hpp"
#include "common/http/message.hpp"

namespace penstock::test {

class Folder {
 public:
  Folder() : path_((std::filesystem::temp_directory_path() / "penstock-router-XXXXXX").string()) {
    if (mkdtemp(path_.data()) == nullptr) throw std::runtime_error("no temporary folder");
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  /// As an editor or a mounted secret does it: a new file takes the old one's place.
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(file(name + ".new")) << text;
    std::filesystem::rename(file(name + ".new"), file(name));
    return file(name);
  }

 private:
  std::string path_;
};

inline std::string key_line(const std::string& key, const std::string& rest) {
  return digest::sha256_hex(key) + " " + rest + "\n";
}

inline http::Headers bearer(const std::string& key) {
  const std::string value = "Bearer " + key;
  return {{"authorization", value}};
}

}  // namespace penstock::test
