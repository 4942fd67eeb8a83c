#include <trireme/checkpoint/digest.h>

#include <trireme/base/hash.h>

#include "checkpoint_testing.h"

namespace trireme::checkpoint::digest_test {
namespace {

constexpr const char* kKind = "xxh3-256k:";

std::vector<std::byte> bytes_of(size_t count) {
  std::mt19937_64 random(count);
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

std::string digest_in_parts(std::span<const std::byte> bytes, size_t part) {
  Digest digest;
  for (size_t at = 0; at < bytes.size(); at += part)
    digest.update(bytes.subspan(at, std::min(part, bytes.size() - at)));
  return digest.text();
}

class FileDigest : public TemporaryFolder {
 protected:
  std::string of(std::span<const std::byte> bytes, int threads, std::string_view like = kKind) {
    overwrite(folder_ / "file", {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    return digest_of_file(folder_ / "file", like, threads);
  }
};

TEST_F(FileDigest, IsTheSameForAnyPartsAndThreads) {
  for (const size_t count : {size_t{0}, size_t{1}, kDigestPiece - 1, kDigestPiece,
                             kDigestPiece + 1, 5 * kDigestPiece + 77}) {
    const auto bytes = bytes_of(count);
    const std::string expected = of(bytes, 1);
    for (const int threads : {2, 3, 8}) EXPECT_EQ(of(bytes, threads), expected) << count;
    for (const size_t part :
         {size_t{1000}, kDigestPiece / 2, kDigestPiece, 2 * kDigestPiece + 5, count + 1})
      EXPECT_EQ(digest_in_parts(bytes, part), expected) << count << " in parts of " << part;
  }
}

TEST_F(FileDigest, ChangesWithAnyBitLengthAndOrder) {
  auto bytes = bytes_of(3 * kDigestPiece);
  const std::string whole = of(bytes, 2);
  for (const size_t at : {size_t{0}, kDigestPiece, 3 * kDigestPiece - 1}) {
    bytes[at] ^= std::byte{1};
    EXPECT_NE(of(bytes, 2), whole);
    bytes[at] ^= std::byte{1};
  }
  EXPECT_NE(of(std::span(bytes).first(bytes.size() - 1), 2), whole);
  std::swap_ranges(bytes.begin(), bytes.begin() + kDigestPiece, bytes.begin() + kDigestPiece);
  EXPECT_NE(of(bytes, 2), whole);
}

// These values are fixed, because files on disks must stay readable.
TEST_F(FileDigest, HasTheValueThatOthersCompute) {
  EXPECT_EQ(of({}, 1), "xxh3-256k:99aa06d3014798d86001c324468d497f");  // XXH3 of no bytes.
}

TEST_F(FileDigest, OfEarlyCheckpointsIsSha256) {
  const auto bytes = bytes_of(3'000'000);
  EXPECT_EQ(of(bytes, 2, std::string(64, '0')),
            sha256_hex({reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
}

TEST_F(FileDigest, OfAKindFromTheFutureIsRefused) {
  EXPECT_TRUE(
      fails_with(ErrorCode::unsupported, {"file", "blake9:77"}, [&] { of({}, 1, "blake9:77"); }));
}

}  // namespace
}  // namespace trireme::checkpoint::digest_test
