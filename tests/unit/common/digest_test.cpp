#include "common/digest/digest.hpp"

#include <gtest/gtest.h>

#include <span>
#include <string>

namespace penstock::digest {
namespace {

base::BytesView bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// FIPS 180-2, appendix B.
TEST(Digest, Sha256OfKnownTexts) {
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

TEST(Digest, PiecesMakeTheWholeAndAddingGoesOn) {
  Digest sha256(Algorithm::sha256), sha1(Algorithm::sha1);
  EXPECT_EQ(sha256.hex(), sha256_hex(""));
  for (const std::string_view piece : {"a", "", "bc"}) {
    sha256.add(piece);
    sha1.add(piece);
  }
  EXPECT_EQ(sha256.hex(), sha256_hex("abc"));
  EXPECT_EQ(sha256.hex(), sha256_hex("abc"));
  EXPECT_EQ(sha1.hex(), "a9993e364706816aba3e25717850c26c9cd0d89d");
}

// RFC 4231, test cases 2 and 6 (a key longer than a block).
TEST(Digest, HmacOfKnownMessages) {
  EXPECT_EQ(to_hex(hmac_sha256("Jefe", bytes_of("what do ya want for nothing?"))),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(
      to_hex(hmac_sha256(std::string(131, '\xaa'), bytes_of("Test Using Larger Than Block-Size Key - Hash Key First"))),
      "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  EXPECT_EQ(hmac_sha256({}, {}), hmac_sha256("", bytes_of("")));
}

TEST(Digest, EqualComparesAllBytes) {
  EXPECT_TRUE(equal(bytes_of("same"), bytes_of("same")));
  EXPECT_FALSE(equal(bytes_of("same"), bytes_of("samE")));
  EXPECT_FALSE(equal(bytes_of("same"), bytes_of("same ")));
  EXPECT_TRUE(equal({}, {}));
}

TEST(Digest, HexBothWays) {
  EXPECT_EQ(to_hex(bytes_of(std::string_view("\x00\x7f\xff", 3))), "007fff");
  const auto back = from_hex("007fff");
  ASSERT_TRUE(back);
  EXPECT_EQ(to_hex(*back), "007fff");
  EXPECT_TRUE(from_hex("")->empty());
  for (const std::string_view wrong : {"0", "0g", "AA", " 0", "0x"}) EXPECT_FALSE(from_hex(wrong)) << wrong;
}

}  // namespace
}  // namespace penstock::digest
