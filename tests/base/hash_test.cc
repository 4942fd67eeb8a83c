#include <gtest/gtest.h>
#include <trireme/base/hash.h>
#include <cstring>
#include <set>
#include <utility>

namespace trireme::hash_test {
namespace {

// The examples of FIPS 180-2.
TEST(Sha256, GivesTheDigestsOfTheStandard) {
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

TEST(Sha256, DoesNotDependOnHowTheBytesAreDivided) {
  const std::string text(1000, 'x');
  Sha256 sha;
  sha.update(std::string_view(text).substr(0, 1));
  sha.update(std::string_view());
  sha.update(std::as_bytes(std::span(text).subspan(1)));
  Sha256 moved = std::move(sha);
  EXPECT_EQ(moved.hex(), sha256_hex(text));
}

// The first outputs of SplitMix64 for the seed 0: state 0, then one golden gamma further.
TEST(Mix64, IsSplitMix64) {
  EXPECT_EQ(mix64(0), 0xe220a8397b1dcdafULL);
  EXPECT_EQ(mix64(0x9e3779b97f4a7c15ULL), 0x6e789e6aa1b965f4ULL);
}

TEST(Mix64, MakesOneSeedOfSeveralNumbersInOrder) {
  EXPECT_EQ(mix64(1, 2), mix64(mix64(1) ^ 2));
  EXPECT_EQ(mix64(1, 2, 3), mix64(mix64(1, 2), 3));
  EXPECT_NE(mix64(1, 2), mix64(2, 1));
}

TEST(Mix64, ScattersNeighbours) {
  std::set<uint64_t> seen;
  for (uint64_t a = 0; a < 100; ++a) {
    for (uint64_t b = 0; b < 100; ++b) seen.insert(mix64(a, b));
  }
  EXPECT_EQ(seen.size(), 10000U);
}

}  // namespace
}  // namespace trireme::hash_test
