#include <trireme/data/pipeline/cache_folder.h>

#include <gmock/gmock.h>
#include <sys/wait.h>

#include <trireme/base/hash.h>
#include <trireme/data/pipeline/cache_store.h>
#include <unistd.h>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "data_files.h"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSamples = 20, kWanted = 200'000, kOfOneSample = 8'000;

std::shared_ptr<CacheStore> open_cache(const Folder& folder, const std::string& name,
                                       int64_t limit, int64_t wanted = kWanted) {
  return CacheStore::on_disk(folder.path(), sha256_hex(name), kSamples, wanted, limit);
}

void fill_cache(CacheStore& store) {
  const std::vector<std::byte> pixels(kOfOneSample, std::byte{3});
  for (int64_t i = 0; i < kSamples; ++i) store.add(i, 0, {1, kOfOneSample, 1, pixels, {}});
}

fs::path file_of(const Folder& folder, const std::string& name) {
  return folder.path() / (sha256_hex(name).substr(0, 32) + ".cache");
}

// Sets the time at which the cache was used last.
void age(const Folder& folder, const std::string& name, int hours) {
  fs::last_write_time(file_of(folder, name),
                      fs::file_time_type::clock::now() - std::chrono::hours(hours));
}

TEST(CacheFolder, KnowsItsCaches) {
  const Folder folder;
  folder.write("notes.cache", "of somebody else");
  folder.write("a.index", "x");
  const auto one = open_cache(folder, "one", 10 * kWanted);
  fill_cache(*one);
  open_cache(folder, "two", 10 * kWanted);
  const std::vector<CacheFile> files = CacheFolder(folder.path()).files();
  ASSERT_EQ(files.size(), 2u);
  for (const CacheFile& file : files) {
    const bool is_one = file.path == file_of(folder, "one");
    EXPECT_EQ(file.is_in_use, is_one);
    EXPECT_EQ(file.stored, is_one ? kSamples : 0);
    EXPECT_EQ(file.samples, kSamples);
    EXPECT_GE(file.bytes, is_one ? kSamples * kOfOneSample : 0);
  }
}

TEST(CacheFolder, ClearRemovesWhatNobodyUses) {
  const Folder folder;
  folder.write("notes.cache", "of somebody else");
  auto used = open_cache(folder, "used", 10 * kWanted);
  fill_cache(*open_cache(folder, "idle", 10 * kWanted));
  EXPECT_GE(CacheFolder(folder.path()).clear(), kSamples * kOfOneSample);
  EXPECT_TRUE(fs::exists(file_of(folder, "used")));
  EXPECT_FALSE(fs::exists(file_of(folder, "idle")));
  EXPECT_TRUE(fs::exists(folder.path() / "notes.cache"));
  used.reset();
  CacheFolder(folder.path()).clear();
  EXPECT_FALSE(fs::exists(file_of(folder, "used")));
}

TEST(CacheFolder, ANewCacheTakesTheSpaceOfTheOldestIdleOne) {
  const Folder folder;
  for (const char* name : {"old", "older", "new"})
    fill_cache(*open_cache(folder, name, 10 * kWanted));
  age(folder, "old", 5), age(folder, "older", 9), age(folder, "new", 1);
  const auto four = open_cache(folder, "four", 3 * kWanted);
  EXPECT_EQ(four->limit(), kWanted);
  EXPECT_FALSE(fs::exists(file_of(folder, "older")));
  EXPECT_TRUE(fs::exists(file_of(folder, "old")));
  EXPECT_TRUE(fs::exists(file_of(folder, "new")));
}

TEST(CacheFolder, CachesInUseKeepWhatTheyWerePromised) {
  const Folder folder;
  const auto one = open_cache(folder, "one", 3 * kWanted / 2);
  age(folder, "one", 9);
  const auto two = open_cache(folder, "two", 3 * kWanted / 2);
  EXPECT_TRUE(fs::exists(file_of(folder, "one")));
  EXPECT_EQ(one->limit(), kWanted);
  EXPECT_LE(two->limit(), kWanted / 2);
  fill_cache(*one), fill_cache(*two);
  EXPECT_FALSE(one->is_full());
  EXPECT_TRUE(two->is_full());
  EXPECT_EQ(open_cache(folder, "three", 3 * kWanted / 2)->limit(), 0);
}

TEST(CacheFolder, AProcessThatWasKilledUsesNothing) {
  const Folder folder;
  const pid_t child = fork();
  if (child == 0) {
    const auto store = open_cache(folder, "one", kWanted);
    std::ofstream(folder.path() / "ready").flush();
    while (true) fill_cache(*store);
  }
  while (!fs::exists(folder.path() / "ready")) usleep(1000);
  EXPECT_EQ(CacheFolder(folder.path()).clear(), 0);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_GT(CacheFolder(folder.path()).clear(), 0);
  EXPECT_FALSE(fs::exists(file_of(folder, "one")));
}

TEST(CacheFolder, ALinkIsNotFollowed) {
  const Folder folder;
  folder.write("precious", "x");
  fs::create_symlink(folder.path() / "precious", file_of(folder, "one"));
  EXPECT_THAT(CacheFolder(folder.path()).files(), testing::IsEmpty());
  expect_error([&] { open_cache(folder, "one", kWanted); }, ErrorCode::io, {".cache"});
  EXPECT_TRUE(fs::exists(folder.path() / "precious"));
}

TEST(CacheFolder, AFolderThatCannotBeUsedIsNamed) {
  expect_error([] { CacheFolder("/proc/nothing"); }, ErrorCode::io,
               {"/proc/nothing", "data.cache_dir"});
}

}  // namespace
}  // namespace trireme::data
