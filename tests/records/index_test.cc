#include <trireme/records/index.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <trireme/base/files.h>
#include <trireme/checkpoint/digest.h>
#include <functional>
#include <thread>

#include "../checkpoint/file_size_limit.h"
#include "files.h"

namespace trireme::records {
namespace index_tests {

namespace fs = std::filesystem;

fs::path index_in(const fs::path& folder) {
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".index") return entry.path();
  return {};
}

TEST(Index, IsMadeOnceAndThenUsed) {
  const Folder folder;
  const std::string file = folder.write("a.txt", "1\n2\n");
  open_path(file);
  const fs::path index = index_in(folder.path());
  ASSERT_FALSE(index.empty());
  const auto before = fs::last_write_time(index);
  EXPECT_EQ(open_path(file)->size(), 2);
  EXPECT_EQ(fs::last_write_time(index), before);
}

TEST(Index, NamesAFileThatChangedAndTheRemedy) {
  const Folder folder;
  const std::string file = folder.write("a.txt", "1\n2\n");
  const auto reader = open_path(file);
  for (const char* const text : {"1\n2\n3\n", "1\n3\n"}) {
    folder.write("a.txt", text);
    const std::string message = message_of(ErrorCode::corrupt, [&] { open_path(file); });
    EXPECT_NE(message.find(file), std::string::npos) << message;
    EXPECT_NE(message.find("trireme data index"), std::string::npos) << message;
  }
  OpenOptions options;
  options.path = file;
  options.make_index_anew = true;
  EXPECT_EQ(text_of(*open_records(options), 1, "text"), "3");
  EXPECT_EQ(open_path(file)->size(), 2);
}

// Changes an index with all that it is checked by, as somebody could who gives data to others.
void forge(const fs::path& index, const std::function<void(std::string& body)>& change) {
  constexpr size_t kHeader = 48, kDigest = 32;
  const std::string whole = read_file(index);
  std::string body = whole.substr(kHeader);
  change(body);
  checkpoint::Digest digest;
  digest.update(std::as_bytes(std::span(body)));
  const auto pieces = digest.pieces();
  const auto checked = checkpoint::digest_of_piece(std::as_bytes(std::span(pieces)));
  std::string header = whole.substr(0, kHeader);
  std::memcpy(header.data() + kDigest, checked.data(), checked.size());
  std::ofstream(index, std::ios::binary) << header << body;
}

TEST(Index, ThatNamesAFileThatItHasNotIsRefused) {
  const Folder folder;
  const std::string file = folder.write("a.txt", "1\n2\n");
  open_path(file);
  forge(index_in(folder.path()), [](std::string& body) {
    const uint32_t beyond = 1'000'000;
    // The file of the last entry is the first half of its last eight bytes.
    std::memcpy(body.data() + body.size() - 8, &beyond, sizeof beyond);
  });
  const auto reader = open_path(file);
  EXPECT_EQ(text_of(*reader, 0, "text"), "1");
  const std::string message = message_of(ErrorCode::corrupt, [&] { read_record(*reader, 1); });
  EXPECT_NE(message.find("trireme data index"), std::string::npos) << message;
}

TEST(Index, ThatLeadsOutsideOfAFolderOfImagesIsRefused) {
  const Folder folder;
  folder.write("secret.jpg", "secret");
  folder.write("f/a/b.jpg", "image");
  const fs::path images = folder.path("f");
  open_path(images);
  forge(index_in(images), [](std::string& body) {
    const size_t name = body.rfind("a/b.jpg");
    body.replace(name, 7, "../x.jp");
  });
  const std::string message =
      message_of(ErrorCode::corrupt, [&] { read_record(*open_path(images), 0); });
  EXPECT_NE(message.find("trireme data index"), std::string::npos) << message;
}

TEST(Index, OfFactsThatAreNoneIsRefused) {
  const Folder folder;
  const std::string file = folder.write("a.csv", "a,b\n1,2\n");
  open_path(file);
  forge(index_in(folder.path()), [](std::string& body) {
    const std::string columns = "\"columns\":[[\"a\"";
    const size_t at = body.find(columns);
    ASSERT_NE(at, std::string::npos);
    body.replace(at, columns.size(), "\"columns\":[[777");
  });
  message_of(ErrorCode::corrupt, [&] { open_path(file); });
}

TEST(Index, AcceptsAFileThatWasOnlyCopied) {
  const Folder folder;
  const std::string file = folder.write("a.txt", "1\n2\n");
  open_path(file);
  fs::last_write_time(file, fs::last_write_time(file) + std::chrono::hours(1));
  EXPECT_EQ(open_path(file)->size(), 2);
}

TEST(Index, NoticesAFileThatWasAdded) {
  const Folder folder;
  folder.write("a.txt", "1\n2\n");
  open_path(folder.path());
  folder.write("b.txt", "3\n");
  const std::string message = message_of(ErrorCode::corrupt, [&] { open_path(folder.path()); });
  EXPECT_NE(message.find("became 2, from 1"), std::string::npos) << message;
}

TEST(Index, IsRefusedIfItIsDamagedAnywhere) {
  const Folder folder;
  const std::string file = folder.write("a.txt", "1\n2\n");
  open_path(file);
  const fs::path index = index_in(folder.path());
  const std::string whole = read_file(index);
  const auto expect_refusal = [&](const std::string& bytes) {
    folder.write(index.filename(), bytes);
    const std::string message = message_of(ErrorCode::corrupt, [&] { open_path(file); });
    EXPECT_NE(message.find(index.filename().string()), std::string::npos) << message;
    EXPECT_NE(message.find("trireme data index"), std::string::npos) << message;
  };
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) expect_refusal(whole.substr(0, bytes));
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    expect_refusal(damaged);
  }
}

TEST(Index, GoesToAnotherFolderIfTheDisksLimitIsReached) {
  const Folder folder, other;
  const std::string file = folder.write("a.txt", "1\n2\n");
  OpenOptions options;
  options.path = file;
  options.index_dir = other.path("cache");
  fs::create_directories(options.index_dir);
  {
    const checkpoint::FileSizeLimit limit(16);
    const std::string message = message_of(ErrorCode::io, [&] { open_records(options); });
    EXPECT_NE(message.find("cannot write"), std::string::npos) << message;
  }
  EXPECT_TRUE(index_in(folder.path()).empty());
  EXPECT_EQ(open_records(options)->size(), 2);
}

TEST(Index, IsPutIntoTheFolderForIndexesIfTheDataCannotBeWritten) {
  if (::geteuid() == 0) {
    // Nothing keeps root from writing, but a folder that does not exist does.
    const Folder folder;
    EXPECT_EQ(index_folder(folder.path()), folder.path());
  }
  ::setenv("XDG_CACHE_HOME", "/some/cache", 1);
  EXPECT_EQ(index_folder({}), "/some/cache/trireme");
  ::unsetenv("XDG_CACHE_HOME");
  EXPECT_EQ(index_folder({}).filename(), "trireme");
}

TEST(Index, MadeBySeveralThreadsAtOnceIsOneIndex) {
  const Folder folder;
  std::string text;
  for (int i = 0; i < 2000; ++i) text += std::to_string(i) + "\n";
  const std::string file = folder.write("a.txt", text);
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] { right += text_of(*open_path(file), 1999, "text") == "1999"; });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 4);
}

TEST(MappedFile, TurnsAFileThatBecameShorterIntoAnError) {
  const Folder folder;
  const std::string file = folder.write("x", std::string(3 * 4096, 'x'));
  const MappedFile map(file);
  EXPECT_NO_THROW(map.check());
  ASSERT_EQ(::truncate(file.c_str(), 100), 0);
  EXPECT_ANY_THROW(map.check());
  // An access after the check must not end the process.
  EXPECT_EQ(map.bytes()[2 * 4096], std::byte{0});
  // The pages are lost, even if the file grows again.
  folder.write("x", std::string(3 * 4096, 'x'));
  EXPECT_ANY_THROW(map.check());
}

TEST(LateChecks, FindWhatBecameShorterWithinAPageBehindTheLastRecord) {
  const Folder folder;
  const std::string file = folder.write("x", std::string(4000, 'x'));
  const MappedFile map(file), other(folder.write("y", "y"));
  {
    const LateChecks checks;
    map.check(), other.check(), map.check();
    EXPECT_TRUE(checks.are_whole());
    ASSERT_EQ(::truncate(file.c_str(), 100), 0);
    EXPECT_NO_THROW(map.check());
    EXPECT_FALSE(checks.are_whole());
    const LateChecks inner;
    other.check();
    EXPECT_TRUE(inner.are_whole());
    // Other threads have nothing to do with it.
    std::jthread([&] { EXPECT_ANY_THROW(map.check()); });
  }
  EXPECT_ANY_THROW(map.check());
}

TEST(LateChecks, FindLostPagesAtOnce) {
  const Folder folder;
  const std::string file = folder.write("x", std::string(3 * 4096, 'x'));
  const MappedFile map(file);
  const LateChecks checks;
  map.check();
  ASSERT_EQ(::truncate(file.c_str(), 100), 0);
  EXPECT_EQ(map.bytes()[2 * 4096], std::byte{0});
  EXPECT_ANY_THROW(map.check());
  EXPECT_FALSE(checks.are_whole());
}

TEST(Index, ThatBecomesShorterIsAnErrorAndNoWrongRecord) {
  const Folder folder;
  std::string text;
  for (int i = 0; i < 2000; ++i) text += std::to_string(i) + "\n";
  const auto reader = open_path(folder.write("a.txt", text));
  fs::resize_file(index_in(folder.path()), 100);
  EXPECT_NE(
      message_of(ErrorCode::corrupt, [&] { read_record(*reader, 1999); }).find("now has 100"),
      std::string::npos);
}

TEST(MappedFileDeathTest, LeavesOtherBusErrorsToTheSystem) {
  const Folder folder;
  const MappedFile map(folder.write("x", "x"));
  // AddressSanitizer has a handler of its own, which ends the process in another way.
  EXPECT_DEATH(std::raise(SIGBUS), "");
}

}  // namespace index_tests
}  // namespace trireme::records
