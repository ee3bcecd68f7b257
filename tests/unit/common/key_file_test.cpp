#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "common/config/key_file.hpp"

namespace penstock::config {
namespace {

class KeyFile : public testing::Test {
 protected:
  void SetUp() override {
    path_ = std::filesystem::temp_directory_path() / ("penstock-key-file-" + std::to_string(getpid()));
  }
  void TearDown() override { std::filesystem::remove(path_); }
  void write(const std::string& bytes) { std::ofstream(path_, std::ios::binary) << bytes; }

  template <class Read>
  static std::string refusal(Read read) {
    try {
      read();
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "";
  }

  std::filesystem::path path_;
};

TEST_F(KeyFile, EveryByteCounts) {
  std::string key(32, '\0');
  for (std::size_t i = 0; i < key.size(); ++i) key[i] = static_cast<char>(i * 37);
  key[31] = '\n';
  write(key);
  EXPECT_EQ(read_key_file(path_, 16, "ticket-key-file"), key);
  const auto whole = read_key_file_256(path_, "block-hash-key-file");
  EXPECT_EQ(std::string(whole.begin(), whole.end()), key);
}

TEST_F(KeyFile, ARefusalNamesOptionFileAndReason) {
  const auto read = [this] { read_key_file(path_, 16, "ticket-key-file"); };
  const auto read_256 = [this] { read_key_file_256(path_, "block-hash-key-file"); };
  const std::string ticket = "--ticket-key-file " + path_.string(), hash = "--block-hash-key-file " + path_.string();
  EXPECT_EQ(refusal(read), ticket + " cannot be read");
  write(std::string(15, 'k'));
  EXPECT_EQ(refusal(read), ticket + " has fewer than 16 bytes");
  EXPECT_EQ(refusal(read_256), hash + " has fewer than 32 bytes");
  write(std::string(33, 'k'));
  EXPECT_EQ(refusal(read), "");
  EXPECT_EQ(refusal(read_256), hash + " must have exactly 32 bytes");
  write(std::string(70'000, 'k'));
  EXPECT_EQ(refusal(read), ticket + " has more than 65536 bytes");
}

TEST_F(KeyFile, AFolderIsNoKey) {
  EXPECT_NE(refusal([] { read_key_file("/", 1, "ticket-key-file"); }).find("cannot be read"), std::string::npos);
}

}  // namespace
}  // namespace penstock::config
