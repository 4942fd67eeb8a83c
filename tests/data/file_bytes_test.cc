#include <trireme/data/file_bytes.h>

#include <fmt/format.h>

#include "data_files.h"

namespace trireme::data::file_bytes_test {
namespace {

TEST(FileBytes, ReadsPlainAndPackedFilesOfAnyName) {
  const Folder folder;
  const std::string content = "one,two\nthree\n";
  EXPECT_EQ(read_data_file(folder.write("plain.gz", content)), content);
  EXPECT_EQ(read_data_file(folder.write("packed.csv", gzipped(content))), content);
  EXPECT_EQ(read_data_file(folder.write("other.csv", zstd_packed(content))), content);
  EXPECT_EQ(read_data_file(folder.write("short", "a")), "a");
}

TEST(FileBytes, ReadsGzipMembersThatFollowEachOther) {
  const Folder folder;
  EXPECT_EQ(read_data_file(folder.write("two.gz", gzipped("first ") + gzipped("second"))),
            "first second");
}

TEST(FileBytes, DecompressesMoreThanOneBuffer) {
  const Folder folder;
  std::string content(3'000'001, 'x');
  for (size_t i = 0; i < content.size(); i += 7)
    content[i] = static_cast<char>(i * 2654435761U >> 24);
  EXPECT_TRUE(read_data_file(folder.write("large.gz", gzipped(content))) == content);
}

TEST(FileBytes, NamesAMissingFile) {
  expect_error([] { read_data_file("/no/such/digits.csv"); }, ErrorCode::not_found,
               {"[data] ", "/no/such/digits.csv", "try: "});
}

TEST(FileBytes, RefusesAFolderAndADevice) {
  const Folder folder;
  expect_error([&] { read_data_file(folder.path()); }, ErrorCode::invalid_argument,
               {folder.path().string(), "is a folder"});
  expect_error([] { read_data_file("/dev/zero"); }, ErrorCode::invalid_argument,
               {"/dev/zero", "not a regular file"});
}

TEST(FileBytes, RefusesEmptyFilesAndThoseThatHoldNothing) {
  const Folder folder;
  expect_error([&] { read_data_file(folder.write("empty", "")); }, ErrorCode::corrupt, {"empty"});
  expect_error([&] { read_data_file(folder.write("empty.gz", gzipped(""))); }, ErrorCode::corrupt,
               {"empty.gz", "no data"});
  expect_error([&] { read_data_file(folder.write("empty.zst", zstd_packed(""))); },
               ErrorCode::corrupt, {"empty.zst", "no data"});
}

TEST(FileBytes, RefusesGzipCutAtEveryByte) {
  const Folder folder;
  const std::string packed = gzipped("0,1,2,3,4,5,6,7,8,9\n");
  // Fewer bytes than three do not tell that it is gzip.
  for (size_t kept = 1; kept < 3; ++kept)
    EXPECT_EQ(read_data_file(folder.write("cut.gz", packed.substr(0, kept))),
              packed.substr(0, kept));
  for (size_t kept = 3; kept < packed.size(); ++kept) {
    expect_error([&] { read_data_file(folder.write("cut.gz", packed.substr(0, kept))); },
                 ErrorCode::corrupt, {"cut.gz", "is cut", fmt::format("{} bytes end", kept)});
  }
}

TEST(FileBytes, RefusesGzipWithAnyByteOfItsDataChanged) {
  const Folder folder;
  const std::string content = "0,1,2,3,4,5,6,7,8,9\n", packed = gzipped(content);
  constexpr size_t kHeader = 10;  // The time and the operating system in it may be anything.
  for (size_t changed = kHeader; changed < packed.size(); ++changed) {
    std::string damaged = packed;
    damaged[changed] = static_cast<char>(damaged[changed] ^ 0x55);
    expect_error([&] { read_data_file(folder.write("damaged.gz", damaged)); }, ErrorCode::corrupt,
                 {"damaged.gz", "gzip data"});
  }
}

TEST(FileBytes, RefusesBytesAfterTheEndOfGzip) {
  const Folder folder;
  const std::string packed = gzipped("data");
  expect_error([&] { read_data_file(folder.write("tail.gz", packed + "tail")); },
               ErrorCode::corrupt,
               {"tail.gz", fmt::format("damaged near byte {}: ", packed.size())});
}

TEST(FileBytes, RefusesBombs) {
  const Folder folder;
  const std::string large(20 << 20, 'x');
  for (const std::string& packed : {gzipped(large), zstd_packed(large)}) {
    const auto file = folder.write("bomb", packed);
    expect_error([&] { read_data_file(file); }, ErrorCode::corrupt,
                 {"bomb", "over 250 times as many", "the file unpacked"});
    const auto named = [](int64_t ratio) {
      return records::UnpackLimits::of_whole_file(ratio, "data.max_ratio");
    };
    expect_error([&] { read_data_file(file, named(300)); }, ErrorCode::corrupt,
                 {"bomb", "over 300 times as many", "a larger data.max_ratio"});
    EXPECT_TRUE(read_data_file(file, named(100'000)) == large);
    records::UnpackLimits small = named(100'000);
    small.memory_bytes = 1 << 20;
    expect_error([&] { read_data_file(file, small); }, ErrorCode::invalid_argument,
                 {"bomb", "more than 1.0 MB, the memory that is free", "smaller files"});
  }
}

TEST(FileBytes, QuotesOnlyPrintableCharacters) {
  EXPECT_EQ(printable("abc"), "'abc'");
  EXPECT_EQ(printable(std::string("a\0\x1b[2J", 6)), "'a??[2J'");
  EXPECT_EQ(printable(std::string(100, 'x')), fmt::format("'{:x>24}...'", ""));
}

}  // namespace
}  // namespace trireme::data::file_bytes_test
