#include <atomic>
#include <thread>

#include "files.h"
#include "tar_files.h"

namespace trireme::records {
namespace threads_tests {

// Reads all records on several threads, each in another order.
void expect_same_records_on_threads(const Reader& reader, std::string_view field) {
  std::vector<std::string> expected;
  for (int64_t i = 0; i < reader.size(); ++i) expected.push_back(text_of(reader, i, field));
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int64_t step : {1, 7, 11, 13})
    threads.emplace_back([&, step] {
      Record record;
      for (int64_t i = 0; i < reader.size(); ++i) {
        const int64_t index = i * step % reader.size();
        reader.read(index, record);
        wrong += record.at(field).text() != expected[static_cast<size_t>(index)];
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(RecordThreads, ReadOnePackedDataSetWithLittleMemory) {
  const Folder folder;
  for (int shard = 0; shard < 5; ++shard) {
    std::string tar;
    for (int i = 0; i < 8; ++i)
      tar += tar_member(fmt::format("{}-{}.txt", shard, i), std::string(9000, char('a' + i)));
    folder.write(fmt::format("{}.tar.gz", shard), gzipped(tar + tar_end()));
  }
  OpenOptions options;
  options.path = folder.path();
  options.memory_bytes = 160'000;  // One or two of the blocks.
  const auto reader = open_records(options);
  ASSERT_EQ(reader->size(), 40);
  expect_same_records_on_threads(*reader, "txt");
}

TEST(RecordThreads, ReadMoreFilesThanAreKeptOpen) {
  const Folder folder;
  for (int file = 0; file < 300; ++file)
    folder.write(fmt::format("{:03}.txt", file), fmt::format("{}\n", file));
  const auto reader = open_path(folder.path());
  ASSERT_EQ(reader->size(), 300);
  expect_same_records_on_threads(*reader, "text");
}

TEST(RecordThreads, AllHearOfABlockThatCannotBeUnpacked) {
  const Folder folder;
  std::string text(100'000, 'x');
  for (size_t i = 0; i < text.size(); i += 100) text[i] = '\n';
  const std::string file = folder.write("x.txt.gz", gzipped(text));
  const auto reader = open_path(file);
  std::string damaged = gzipped(text);
  damaged[damaged.size() - 6] = static_cast<char>(damaged[damaged.size() - 6] ^ 1);
  folder.write("x.txt.gz", damaged);
  // The block that was unpacked for the index is still in memory, and is right.
  EXPECT_NO_THROW(read_record(*reader, 0));
  std::atomic<int> refused{0};
  std::vector<std::thread> threads;
  OpenOptions options;
  options.path = file;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      try {
        open_records(options);
      } catch (const Error&) {
        ++refused;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(refused, 4);
}

}  // namespace threads_tests
}  // namespace trireme::records
