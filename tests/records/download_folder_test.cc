#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <trireme/records/damage.h>
#include <trireme/records/data_files.h>
#include <trireme/records/remote/address.h>
#include <trireme/records/remote/download_folder.h>
#include <algorithm>
#include <future>
#include <optional>
#include <thread>
#include "files.h"

namespace trireme::records {
namespace download_folder_tests {

namespace fs = std::filesystem;

constexpr int64_t kNoLimit = int64_t{1} << 40;

PartialFile begun(const DownloadFolder& folder, const std::string& name, int64_t bytes,
                  int64_t limit = kNoLimit) {
  auto part = folder.begin(name);
  EXPECT_TRUE(part);
  folder.restart(*part, name, {.bytes = bytes, .version = "\"1\"", .digest = {}});
  EXPECT_TRUE(folder.make_room(*part, bytes, limit, {}));
  return std::move(*part);
}

void put(PartialFile& part, const std::string& text) {
  EXPECT_EQ(::pwrite(part.descriptor.get(), text.data(), text.size(), part.bytes),
            static_cast<ssize_t>(text.size()));
  part.bytes += static_cast<int64_t>(text.size());
}

void put_whole(const DownloadFolder& folder, const std::string& name, int64_t bytes,
               int64_t limit = kNoLimit) {
  PartialFile part = begun(folder, name, bytes, limit);
  put(part, std::string(static_cast<size_t>(bytes), 'x'));
  folder.finish(std::move(part), name);
}

TEST(DownloadFolder, GivesAFileOnlyWhenItIsWhole) {
  const Folder disk;
  const DownloadFolder folder(disk.path("downloads"));
  EXPECT_FALSE(folder.open("a"));
  {
    PartialFile part = begun(folder, "a", 6);
    put(part, "abc");
    EXPECT_FALSE(folder.open("a"));
    EXPECT_FALSE(folder.begin("a")) << "two processes at one file";
    EXPECT_EQ(folder.progress("a"), 3);
  }
  PartialFile again = *folder.begin("a");  // The first process has died.
  EXPECT_EQ(again.bytes, 3);
  EXPECT_EQ(again.facts.version, "\"1\"");
  put(again, "def");
  const FetchedFile made = folder.finish(std::move(again), "a");
  const auto opened = folder.open("a");
  ASSERT_TRUE(opened);
  EXPECT_EQ(opened->facts.bytes, 6);
  EXPECT_EQ(opened->facts.digest, made.facts.digest);
  EXPECT_FALSE(fs::exists(disk.path("downloads/a.part")));
  EXPECT_FALSE(fs::exists(disk.path("downloads/a.part.json")));
}

TEST(DownloadFolder, BeginsAPartAnewThatNobodyCanContinue) {
  const Folder disk;
  const DownloadFolder folder(disk.path());
  const auto leave_part = [&](const std::string& version) {
    auto part = folder.begin("a");
    folder.restart(*part, "a", {.bytes = 6, .version = version, .digest = {}});
    put(*part, "abc");
  };
  leave_part("");  // A server without versions.
  EXPECT_EQ(folder.begin("a")->bytes, 0);
  leave_part("\"1\"");
  EXPECT_EQ(folder.begin("a")->bytes, 3);
  disk.write("a.part.json", R"({"bytes": 6, "version": "\"1\"", "boot": "another"})");
  EXPECT_EQ(folder.begin("a")->bytes, 0);
  disk.write("a.part.json", R"({"bytes": 6, "ver)");
  EXPECT_EQ(folder.begin("a")->bytes, 0);
}

TEST(DownloadFolder, TakesNoDamagedFileForWhole) {
  const Folder disk;
  const DownloadFolder folder(disk.path());
  put_whole(folder, "a", 100);
  EXPECT_TRUE(folder.open("a"));
  fs::resize_file(disk.path("a.shard"), 99);
  EXPECT_FALSE(folder.open("a"));
  put_whole(folder, "a", 100);
  EXPECT_TRUE(folder.open("a"));
  fs::remove(disk.path("a.json"));
  EXPECT_FALSE(folder.open("a"));
  fs::remove(disk.path("a.shard"));
  fs::create_symlink(disk.write("other", "xx"), disk.path("a.shard"));
  EXPECT_FALSE(folder.open("a"));
}

TEST(DownloadFolder, RemovesTheOldestFilesThatNobodyUses) {
  const Folder disk;
  const DownloadFolder folder(disk.path());
  constexpr int64_t kBytes = 64 << 10, kLimit = 3 * kBytes;
  for (const char* const name : {"a", "b", "c"}) put_whole(folder, name, kBytes, kLimit);
  const auto time = fs::last_write_time(disk.path("c.shard"));
  fs::last_write_time(disk.path("a.shard"), time - std::chrono::hours(3));
  fs::last_write_time(disk.path("b.shard"), time - std::chrono::hours(2));
  fs::last_write_time(disk.path("c.shard"), time - std::chrono::hours(1));
  const auto in_use = folder.open("a");  // It is the newest now, too.
  fs::last_write_time(disk.path("a.shard"), time - std::chrono::hours(3));
  put_whole(folder, "d", kBytes, kLimit);
  EXPECT_TRUE(folder.has("a"));
  EXPECT_FALSE(folder.has("b"));
  EXPECT_TRUE(folder.has("c"));
  PartialFile part = *folder.begin("e");
  const auto keep = [](const std::string& name) { return name == "c" || name == "d"; };
  EXPECT_FALSE(folder.make_room(part, kBytes, kLimit, keep));
  EXPECT_TRUE(folder.has("c"));
  EXPECT_TRUE(folder.make_room(part, kBytes, kLimit, {}));
  EXPECT_FALSE(folder.has("c"));
  EXPECT_TRUE(folder.has("d"));
}

TEST(DownloadFolder, LeavesAPartThatIsBeingFetched) {
  const Folder disk;
  const DownloadFolder folder(disk.path());
  constexpr int64_t kBytes = 64 << 10;
  PartialFile first = begun(folder, "a", kBytes, 2 * kBytes);
  PartialFile second = *folder.begin("b");
  EXPECT_FALSE(folder.make_room(second, 2 * kBytes, 2 * kBytes, {}));
  EXPECT_TRUE(fs::exists(disk.path("a.part")));
  first.descriptor.reset();  // Its process has died.
  EXPECT_TRUE(folder.make_room(second, 2 * kBytes, 2 * kBytes, {}));
  EXPECT_FALSE(fs::exists(disk.path("a.part")));
}

TEST(DownloadFolder, OpensNoOldBytesWithTheFactsOfNewOnes) {
  const Folder disk;
  const DownloadFolder folder(disk.path());
  put_whole(folder, "a", 6);
  PartialFile part = begun(folder, "a", 6);
  put(part, "abcdef");
  // The last step fails, as if the process had been killed before it.
  fs::remove(disk.path("a.part"));
  EXPECT_THROW(folder.finish(std::move(part), "a"), Damage);
  EXPECT_TRUE(fs::exists(disk.path("a.json"))) << "there is nothing to confuse";
  EXPECT_FALSE(folder.open("a"));
}

TEST(DownloadFolder, OpensNoFileThatAnotherReplacesMeanwhile) {
  const Folder disk;
  const DownloadFolder folder(disk.path());
  put_whole(folder, "a", 6);
  std::string facts;
  std::getline(std::ifstream(disk.path("a.json")), facts);
  // The reader waits for the facts until the new file is there.
  fs::remove(disk.path("a.json"));
  ASSERT_EQ(::mkfifo(disk.path("a.json").c_str(), 0600), 0);
  std::optional<FetchedFile> opened;
  std::thread reader([&] { opened = folder.open("a"); });
  int pipe = -1;
  for (const auto deadline = Deadline::after(Milliseconds(20'000));
       pipe < 0 && !deadline.expired();)
    pipe = ::open(disk.path("a.json").c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
  ASSERT_GE(pipe, 0);
  fs::rename(disk.write("new", "abcdef"), disk.path("a.shard"));
  EXPECT_EQ(::write(pipe, facts.data(), facts.size()), std::ssize(facts));
  ::close(pipe);
  reader.join();
  EXPECT_FALSE(opened);
}

TEST(DownloadFolder, GivesNoFileItsNameWhileAnotherProcessRemovesFiles) {
  const Folder disk;
  const DownloadFolder folder(disk.path());
  put_whole(folder, "a", 6);
  PartialFile part = begun(folder, "a", 6);
  put(part, "abcdef");
  PartialFile own = *folder.begin("own");
  std::promise<void> finished;
  std::thread finisher;
  // Between what is asked here and the removal of the facts, no new facts may come.
  const auto keep = [&](const std::string&) {
    if (finisher.joinable()) return false;
    finisher = std::thread([&] {
      folder.finish(std::move(part), "a");
      finished.set_value();
    });
    EXPECT_EQ(finished.get_future().wait_for(Milliseconds(200)), std::future_status::timeout);
    return false;
  };
  EXPECT_FALSE(folder.make_room(own, 1, 0, keep));
  finisher.join();
  EXPECT_TRUE(folder.open("a"));
}

TEST(Address, IsShownWithoutSecrets) {
  EXPECT_EQ(shown_address("https://me:pass@host:80/a/b.tar?sig=1#x"), "https://host:80/a/b.tar");
  EXPECT_EQ(shown_address("http://host/a@b.tar"), "http://host/a@b.tar");
  EXPECT_EQ(address_of_file("https://me:p@ss@host/a?x"), "https://host/a?x");
  EXPECT_EQ(shown_address("http://[::1]:80/a@b.tar"), "http://[::1]:80/a@b.tar");
  EXPECT_EQ(shown_path("a/b?c@d"), "a/b?c@d");
  EXPECT_FALSE(is_address("pipe:https://host/a"));
  EXPECT_FALSE(is_address("file:///a"));
}

TEST(Address, IsRefusedAndHiddenIfAPasswordEndsItsHost) {
  for (const char* const address : {"https://me:pa/ss@host/a.tar", "https://me:pa?ss@host/a.tar",
                                    "https://me:pa#ss@host/a.tar", "https://me:/pass@host/a.tar",
                                    "https://me:pa/s@s@host/a.tar", "https://me:p/ss@host/{a"}) {
    EXPECT_EQ(shown_address(address).substr(0, 13), "https://host/") << address;
    const std::string said =
        message_of(ErrorCode::invalid_argument, [&] { find_remote_files(address, {}); });
    EXPECT_EQ(said.find("s@"), std::string::npos) << said;
  }
  const std::string said = message_of(ErrorCode::invalid_argument,
                                      [] { find_remote_files("https://me:pa@host/{3..1}", {}); });
  EXPECT_EQ(said.find("me:pa"), std::string::npos) << said;
}

TEST(Address, NamesTheFilesOfAPattern) {
  const Folder disk;
  const DownloadOptions options{.folder = disk.path()};
  const DataFiles files =
      find_remote_files("https://me:pass@host/b/{x,y}/s-{08..10}.tar?sig=1", options);
  EXPECT_EQ(files.base, "https://host/b");
  ASSERT_EQ(files.names.size(), 6);
  EXPECT_EQ(files.names[0], "x/s-08.tar");
  EXPECT_EQ(files.path_of(5), "https://host/b/y/s-10.tar");
  EXPECT_EQ(files.remote->address(0), "https://me:pass@host/b/x/s-08.tar?sig=1");
  const DataFiles hosts = find_remote_files("https://{a,b}/s.tar", options);
  EXPECT_EQ(hosts.path_of(1), "https://b/s.tar");
  message_of(ErrorCode::invalid_argument,
             [&] { find_remote_files("https://host/get?file={a,b}", options); });
}

}  // namespace download_folder_tests
}  // namespace trireme::records
