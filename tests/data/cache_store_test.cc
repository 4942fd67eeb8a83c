#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <trireme/data/input_memory.h>
#include <trireme/data/pipeline/cache_store.h>
#include <unistd.h>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "data_files.h"

namespace trireme::data {
namespace {

constexpr int64_t kMegabyte = 1 << 20, kStamp = 77;

// Sample i as bytes that its number gives.
struct Made {
  explicit Made(int64_t index, int64_t side = 8) : pixels(static_cast<size_t>(side * side * 3)) {
    for (size_t i = 0; i < pixels.size(); ++i)
      pixels[i] = static_cast<std::byte>(static_cast<size_t>(index) * 31 + i);
    target = {static_cast<std::byte>(index), std::byte{7}};
    sample = {side, side, 3, pixels, target};
  }
  std::vector<std::byte> pixels, target;
  CachedSample sample;
};

std::shared_ptr<CacheBudget> bytes(int64_t limit) { return CacheBudget::of_process(limit); }

bool holds(const CacheStore& store, int64_t index) {
  CachedSample found;
  if (!store.find(index, kStamp, found)) return false;
  const Made made(index);
  EXPECT_EQ(found.height, 8);
  EXPECT_TRUE(std::ranges::equal(found.pixels, made.pixels)) << index;
  EXPECT_TRUE(std::ranges::equal(found.target, made.target)) << index;
  return true;
}

TEST(CacheStore, GivesBackWhatItGot) {
  const auto store = CacheStore::in_memory("key", 100, bytes(kMegabyte));
  EXPECT_FALSE(holds(*store, 3));
  for (int64_t i = 0; i < 100; i += 2) store->add(i, kStamp, Made(i).sample);
  for (int64_t i = 0; i < 100; ++i) EXPECT_EQ(holds(*store, i), i % 2 == 0);
  EXPECT_EQ(store->stored(), 50);
  EXPECT_FALSE(store->is_full());
  CachedSample none;
  EXPECT_FALSE(store->find(-1, kStamp, none));
  EXPECT_FALSE(store->find(100, kStamp, none));
}

TEST(CacheStore, WhatDoesNotFitStaysOut) {
  const auto store = CacheStore::in_memory("key", 1000, bytes(20'000));
  for (int64_t i = 0; i < 1000; ++i) store->add(i, kStamp, Made(i).sample);
  EXPECT_TRUE(store->is_full());
  EXPECT_GT(store->stored(), 50);
  EXPECT_LE(store->bytes(), 20'300);
  int64_t held = 0;
  for (int64_t i = 0; i < 1000; ++i) held += holds(*store, i) ? 1 : 0;
  EXPECT_EQ(held, store->stored());
  EXPECT_TRUE(holds(*store, 0));  // The first ones stay.
}

TEST(CacheStore, ThreadsAddTheSameSamples) {
  const auto store = CacheStore::in_memory("key", 500, bytes(4 * kMegabyte));
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&store, t] {
      for (int64_t i = 0; i < 500; ++i)
        store->add((i * 7 + t * 13) % 500, kStamp, Made((i * 7 + t * 13) % 500).sample);
    });
  threads.clear();
  for (int64_t i = 0; i < 500; ++i) EXPECT_TRUE(holds(*store, i));
  EXPECT_EQ(store->stored(), 500);
}

TEST(CacheStore, ALaterJobFindsItOnTheDisk) {
  const Folder folder;
  {
    const auto store = CacheStore::on_disk(folder.path(), "one", 10, kMegabyte, kMegabyte);
    for (int64_t i = 0; i < 5; ++i) store->add(i, kStamp, Made(i).sample);
  }
  const auto again = CacheStore::on_disk(folder.path(), "one", 10, kMegabyte, kMegabyte);
  for (int64_t i = 0; i < 10; ++i) EXPECT_EQ(holds(*again, i), i < 5);
  const auto other = CacheStore::on_disk(folder.path(), "two", 10, kMegabyte, kMegabyte);
  EXPECT_FALSE(holds(*other, 0));
}

int64_t fill(CacheStore& store, int64_t from, int64_t to) {
  for (int64_t i = from; i < to; ++i) store.add(i, kStamp, Made(i).sample);
  return store.stored();
}

// The training part and the test part.
TEST(CacheStore, TwoShareOneBudget) {
  const auto budget = bytes(50'000);
  const auto one = CacheStore::in_memory("one", 1000, budget);
  const auto two = CacheStore::in_memory("two", 1000, budget);
  EXPECT_EQ(fill(*one, 0, 100), 100);
  fill(*two, 0, 1000);
  EXPECT_TRUE(two->is_full());
  EXPECT_LE(one->bytes() + two->bytes(), 50'000);
  EXPECT_GT(one->bytes() + two->bytes(), 49'000);
  EXPECT_EQ(budget->taken(), one->bytes() + two->bytes());
  EXPECT_TRUE(holds(*one, 99));
}

TEST(InputMemory, BatchesHaveWhatCachesLeave) {
  EXPECT_EQ(memory_of_batches(1000, 700), 300);
  EXPECT_EQ(memory_of_batches(1000, 1000), 0);  // The asked amount is never exceeded.
  EXPECT_EQ(memory_of_batches(1000, 5000), 0);
  EXPECT_GT(memory_of_batches(-1, int64_t{1} << 60), 0);
}

TEST(InputMemory, UnpackedFilesHaveHalfOfTheBatches) {
  EXPECT_EQ(memory_of_kept_blocks(1000, 700), 150);
  EXPECT_GT(memory_of_kept_blocks(-1, 0), 0);
  EXPECT_EQ(memory_of_block(-1), int64_t{1} << 30);
  EXPECT_EQ(memory_of_block(0), 64 * kMegabyte);
  EXPECT_EQ(memory_of_block(1000 * kMegabyte), 500 * kMegabyte);
  EXPECT_EQ(memory_of_block(int64_t{1} << 40), int64_t{1} << 39);
}

TEST(InputMemory, AnImageHasAQuarterOfWhatIsAskedForWithinBounds) {
  EXPECT_EQ(memory_of_image(-1), int64_t{1} << 30);
  EXPECT_EQ(memory_of_image(0), 64 * kMegabyte);
  EXPECT_EQ(memory_of_image(256 * kMegabyte), 64 * kMegabyte);
  EXPECT_EQ(memory_of_image(1000 * kMegabyte), 250 * kMegabyte);
  EXPECT_EQ(memory_of_image(int64_t{1} << 40), int64_t{1} << 30);
}

TEST(CacheBudget, OfAHostIsDividedByThePartsOfItsOwn) {
  const HostCaches host(2, 1000);
  use_caches_of(host.variable());
  const auto budget = bytes(400);
  budget->find_host();
  use_caches_of("");
  EXPECT_EQ(budget->limit(), 1000);
  EXPECT_FALSE(budget->plan(401));
  EXPECT_TRUE(budget->plan(400));
  EXPECT_TRUE(budget->take(1000));
  budget->give_back(600);
  EXPECT_EQ(budget->taken(), 400);
}

TEST(CacheBudget, IsNotFoundInOtherMemory) {
  net::SharedMemory other =
      net::SharedMemory::create(4096, net::Sharing::processes, "something else");
  other.seal_size();
  use_caches_of(std::to_string(getpid()) + ":" + std::to_string(other.descriptor()));
  const auto budget = bytes(400);
  budget->find_host();
  use_caches_of("");
  EXPECT_EQ(budget->limit(), 400);
}

TEST(CacheBudget, PlansWhatFitsTogether) {
  const auto budget = bytes(100);
  EXPECT_TRUE(budget->plan(60));
  EXPECT_FALSE(budget->plan(60));
  EXPECT_TRUE(budget->plan(40));
  EXPECT_EQ(budget->taken(), 0);
}

TEST(CacheStore, ALargerLimitHoldsForAFileThatIsThere) {
  const Folder folder;
  const auto open = [&](int64_t limit) {
    return CacheStore::on_disk(folder.path(), "one", 1000, limit, limit);
  };
  const int64_t small = fill(*open(20'000), 0, 1000);
  EXPECT_LT(small, 100);
  const auto larger = open(200'000);
  EXPECT_GT(fill(*larger, 0, 1000), 5 * small);
  for (int64_t i = 0; i < small; ++i) EXPECT_TRUE(holds(*larger, i));
}

// Another job may make the file larger while this one has a smaller map of it.
TEST(CacheStore, AFileMayGrowUnderThoseThatUseIt) {
  const Folder folder;
  const auto old = CacheStore::on_disk(folder.path(), "one", 1000, 20'000, 20'000);
  fill(*old, 0, 10);
  const auto larger = CacheStore::on_disk(folder.path(), "one", 1000, 400'000, 400'000);
  EXPECT_EQ(fill(*larger, 0, 1000), 1000);
  EXPECT_TRUE(holds(*old, 5));
  EXPECT_FALSE(holds(*old, 999));
  old->add(999, kStamp, Made(999).sample);
  EXPECT_FALSE(larger->is_full());
  // And a smaller limit takes nothing from it.
  const auto smaller = CacheStore::on_disk(folder.path(), "one", 1000, 100, 100);
  EXPECT_EQ(smaller->limit(), larger->limit());
  EXPECT_TRUE(holds(*smaller, 999));
}

TEST(CacheStore, ADamagedSampleIsNotThere) {
  const Folder folder;
  {
    const auto store = CacheStore::on_disk(folder.path(), "one", 10, kMegabyte, kMegabyte);
    for (int64_t i = 0; i < 3; ++i) store->add(i, kStamp, Made(i).sample);
  }
  const auto path = folder.path() / "one.cache";
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(4096 + 80 + 40 + 10);  // In the first sample, behind head and table.
  file.put(99);
  file.close();
  const auto again = CacheStore::on_disk(folder.path(), "one", 10, kMegabyte, kMegabyte);
  EXPECT_FALSE(holds(*again, 0));
  EXPECT_TRUE(holds(*again, 1));
  again->add(0, kStamp, Made(0).sample);
  EXPECT_TRUE(holds(*again, 0));
}

TEST(CacheStore, ASampleOfAnOlderFileIsNotThere) {
  const auto store = CacheStore::in_memory("key", 10, bytes(kMegabyte));
  store->add(3, kStamp - 1, Made(4).sample);
  EXPECT_FALSE(holds(*store, 3));
  store->add(3, kStamp, Made(3).sample);
  EXPECT_TRUE(holds(*store, 3));
}

// As a power cut may leave it: the table is newer than the head.
TEST(CacheStore, SpaceOfASampleIsNotGivenTwice) {
  const Folder folder;
  {
    const auto store = CacheStore::on_disk(folder.path(), "one", 10, kMegabyte, kMegabyte);
    for (int64_t i = 0; i < 3; ++i) store->add(i, kStamp, Made(i).sample);
  }
  const auto path = folder.path() / "one.cache";
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  const uint64_t begin = 4096 + 80;
  file.seekp(16 + 64 + 2 * sizeof(uint64_t));
  file.write(reinterpret_cast<const char*>(&begin), sizeof begin);
  file.close();
  const auto again = CacheStore::on_disk(folder.path(), "one", 10, kMegabyte, kMegabyte);
  again->add(5, kStamp, Made(5).sample);
  for (const int64_t i : {0, 1, 2, 5}) EXPECT_TRUE(holds(*again, i)) << i;
}

TEST(CacheStore, AFileThatWasCutIsMadeAnew) {
  const Folder folder;
  const auto path = folder.path() / "one.cache";
  const auto store = CacheStore::on_disk(folder.path(), "one", 10, kMegabyte, kMegabyte);
  store->add(0, kStamp, Made(0).sample);
  std::filesystem::resize_file(path, 50);
  EXPECT_FALSE(holds(*store, 0));  // No SIGBUS.
  store->add(1, kStamp, Made(1).sample);
  const auto again = CacheStore::on_disk(folder.path(), "one", 10, kMegabyte, kMegabyte);
  EXPECT_FALSE(holds(*again, 0));
  again->add(0, kStamp, Made(0).sample);
  EXPECT_TRUE(holds(*again, 0));
  folder.write("two.cache", std::string(10'000, 'x'));
  EXPECT_FALSE(holds(*CacheStore::on_disk(folder.path(), "two", 10, kMegabyte, kMegabyte), 0));
}

// The file is cut between the look-up and the use of a sample.
TEST(CacheStore, AFileThatIsCutWhileASampleIsReadIsNotWhole) {
  const Folder folder;
  const auto store = CacheStore::on_disk(folder.path(), "one", 10, kMegabyte, kMegabyte);
  const Made large(3, 200);
  store->add(3, kStamp, large.sample);
  CachedSample found;
  ASSERT_TRUE(store->find(3, kStamp, found));
  EXPECT_TRUE(store->is_whole());
  std::filesystem::resize_file(folder.path() / "one.cache", 8192);
  EXPECT_EQ(found.pixels.back(), std::byte{0});  // No SIGBUS.
  std::filesystem::resize_file(folder.path() / "one.cache", 2 * kMegabyte);
  EXPECT_FALSE(store->is_whole());
  EXPECT_FALSE(store->find(3, kStamp, found));
  store->add(4, kStamp, large.sample);
  EXPECT_FALSE(store->find(4, kStamp, found));
  EXPECT_EQ(store->bytes() + store->limit() + store->stored(), 0);
}

// It was cut behind its table, so a later job must not take its samples for there.
TEST(CacheStore, AFileThatWasCutInItsSamplesIsMadeAnew) {
  const Folder folder;
  {
    const auto store = CacheStore::on_disk(folder.path(), "one", 10, kMegabyte, kMegabyte);
    for (int64_t i = 0; i < 10; ++i) store->add(i, kStamp, Made(i).sample);
  }
  std::filesystem::resize_file(folder.path() / "one.cache", 4096 + 80 + 500);
  const auto again = CacheStore::on_disk(folder.path(), "one", 10, kMegabyte, kMegabyte);
  EXPECT_EQ(again->stored(), 0);
  EXPECT_EQ(again->bytes(), 0);
  EXPECT_FALSE(holds(*again, 0));
}

TEST(CacheStore, AKilledProcessLeavesItWhole) {
  const HostCaches caches(2, 16 * kMegabyte);
  setenv(kCacheVariable, caches.variable().c_str(), 1);
  const auto store = CacheStore::in_memory("shared", 20'000, bytes(1));
  EXPECT_EQ(store->limit(), 16 * kMegabyte);
  const pid_t child = fork();
  if (child == 0) {
    const auto same = CacheStore::in_memory("shared", 20'000, bytes(1));
    for (int64_t i = 0;; ++i) same->add(i % 20'000, kStamp, Made(i % 20'000).sample);
  }
  while (store->stored() < 200) std::this_thread::yield();
  kill(child, SIGKILL);
  int status = 0;
  waitpid(child, &status, 0);
  const auto other = CacheStore::in_memory("another", 10, bytes(1));
  unsetenv(kCacheVariable);
  int64_t held = 0;
  for (int64_t i = 0; i < 20'000; ++i) held += holds(*store, i) ? 1 : 0;
  EXPECT_GE(held, store->stored());
  store->add(19'999, kStamp, Made(19'999).sample);
  other->add(1, kStamp, Made(1).sample);
  EXPECT_TRUE(holds(*store, 19'999) || store->is_full());
  EXPECT_TRUE(holds(*other, 1));
}

TEST(CacheStore, MemoryThatIsNoCacheOfAHostIsNotUsed) {
  const Folder folder;
  std::ofstream(folder.path() / "file") << std::string(100'000, 'x');
  const int other = open((folder.path() / "file").c_str(), O_RDWR);
  for (const std::string& value : {std::to_string(getpid()) + ":" + std::to_string(other),
                                   std::string("1:9999"), std::string("nonsense")}) {
    use_caches_of(value);
    const auto store = CacheStore::in_memory("key", 10, bytes(kMegabyte));
    store->add(1, kStamp, Made(1).sample);
    EXPECT_TRUE(holds(*store, 1));
    EXPECT_EQ(store->limit(), kMegabyte);
  }
  use_caches_of("");
  close(other);
}

}  // namespace
}  // namespace trireme::data
