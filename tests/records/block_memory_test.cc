#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/records/block_cache.h>
#include <memory>
#include <string>

#include "files.h"
#include "tar_files.h"

namespace trireme::records {
namespace block_memory_tests {

using Cache = BlockCache<int, std::string>;

// Reads a block of 10 bytes; returns whether it had to be made.
bool makes(Cache& cache, int key) {
  bool made = false;
  cache.get(
      key,
      [&] {
        made = true;
        return std::make_shared<const std::string>(10, 'x');
      },
      [](const std::string& block) { return static_cast<int64_t>(block.size()); });
  return made;
}

TEST(BlockMemory, ForgetsTheBlocksThatWereUsedTheLongestTimeAgo) {
  const auto memory = std::make_shared<BlockMemory>(20);
  Cache cache(memory);
  EXPECT_TRUE(makes(cache, 1));
  EXPECT_TRUE(makes(cache, 2));
  EXPECT_FALSE(makes(cache, 1));
  EXPECT_TRUE(makes(cache, 3));  // In place of 2.
  EXPECT_FALSE(makes(cache, 1));
  EXPECT_TRUE(makes(cache, 2));
  EXPECT_EQ(memory->kept_bytes(), 20);
}

TEST(BlockMemory, ReadersShareTheirMemory) {
  const auto memory = std::make_shared<BlockMemory>(40);
  Cache train(memory);
  {
    Cache test(memory);
    for (int key = 0; key < 4; ++key) makes(train, key);
    for (int key = 0; key < 8; ++key) makes(test, key);
    EXPECT_EQ(memory->kept_bytes(), 40);
    EXPECT_FALSE(makes(train, 3));  // Its last one stays.
    EXPECT_TRUE(makes(train, 2));
  }
  EXPECT_EQ(memory->kept_bytes(), 20);  // Those of the reader that is gone are not counted.
  memory->set_limit(10);
  EXPECT_EQ(memory->kept_bytes(), 10);
  EXPECT_FALSE(makes(train, 2));
}

TEST(BlockMemory, KeepsTheLastBlockOfEachReaderThatIsInUse) {
  const auto memory = std::make_shared<BlockMemory>(1);
  Cache one(memory), other(memory);
  EXPECT_TRUE(makes(one, 1));
  EXPECT_TRUE(makes(other, 1));
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(makes(one, 1) || makes(other, 1));
  for (int64_t i = 0; i < BlockMemory::kRecentUses; ++i) makes(one, 1);
  EXPECT_TRUE(makes(one, 2));
  EXPECT_EQ(memory->kept_bytes(), 10);  // The other reader has not been used for long.
  EXPECT_TRUE(makes(other, 1));
}

TEST(BlockMemory, BoundsWhatReadersOfPackedFilesKeepTogether) {
  const Folder folder;
  OpenOptions options;
  options.blocks = std::make_shared<BlockMemory>(100'000);
  std::vector<std::shared_ptr<const Reader>> readers;
  for (const char* const part : {"train", "test"}) {
    for (int shard = 0; shard < 6; ++shard)
      folder.write(
          fmt::format("{}-{}.tar.gz", part, shard),
          gzipped(tar_member(fmt::format("{}.txt", shard), std::string(30'000, 'a')) + tar_end()));
    options.path = folder.path(std::string(part) + "-*.tar.gz");
    readers.push_back(open_records(options));
  }
  for (const auto& reader : readers)
    for (int64_t i = 0; i < reader->size(); ++i) read_record(*reader, i);
  EXPECT_TRUE(options.blocks->has_readers());
  EXPECT_GT(options.blocks->kept_bytes(), 60'000);
  EXPECT_LE(options.blocks->kept_bytes(), 100'000);
  readers.clear();
  EXPECT_EQ(options.blocks->kept_bytes(), 0);
  EXPECT_FALSE(options.blocks->has_readers());
}

TEST(BlockMemory, AFileThatUnpacksToMoreNamesTheRemedyOfItsReader) {
  const Folder folder;
  OpenOptions options;
  options.path = folder.write("0.tar.gz",
                              gzipped(tar_member("0.txt", std::string(200'000, 'a')) + tar_end()));
  options.memory_bytes = 1 << 16;
  options.remedy_of_memory = "a larger data.memory_bytes";
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { open_records(options); }),
              testing::HasSubstr("a larger data.memory_bytes, or smaller files"));
  options.memory_bytes = 1 << 20;
  EXPECT_EQ(open_records(options)->size(), 1);
}

}  // namespace block_memory_tests
}  // namespace trireme::records
