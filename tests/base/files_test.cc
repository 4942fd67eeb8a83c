#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <trireme/base/files.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <fstream>
#include <iterator>
#include <thread>
#include <vector>

#include "expect_error.h"

namespace trireme::files_test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

class Files : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "trireme_files_XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder = pattern;
  }
  void TearDown() override { fs::remove_all(folder); }

  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder))
      found.push_back(entry.path().filename().string());
    std::sort(found.begin(), found.end());
    return found;
  }
  fs::path folder;
};

// During its life a file cannot grow past `bytes`, as on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int) = nullptr;
};

TEST_F(Files, ReadBackTheWrittenContent) {
  std::string content(1 << 20, '\0');
  for (size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * 31);
  for (const std::string& text : {std::string(), std::string("x"), content}) {
    write_file_atomically(folder / "a", text);
    EXPECT_EQ(read_file(folder / "a"), text);
  }
  EXPECT_THAT(names(), testing::ElementsAre("a"));
}

TEST_F(Files, ReplaceTheOldContentInOneStep) {
  const fs::path path = folder / "a";
  const std::string old_content(100'000, 'o'), new_content(100'000, 'n');
  write_file_atomically(path, old_content);
  std::atomic<bool> stop = false;
  int torn = 0;
  std::thread reader([&] {
    while (!stop) {
      const std::string seen = read_file(path);
      if (seen != old_content && seen != new_content) ++torn;
    }
  });
  for (int i = 0; i < 20; ++i) write_file_atomically(path, i % 2 == 0 ? new_content : old_content);
  stop = true;
  reader.join();
  EXPECT_EQ(torn, 0);
}

TEST_F(Files, KeepAnOpenReadersContent) {
  write_file_atomically(folder / "a", "old");
  std::ifstream reader(folder / "a");
  write_file_atomically(folder / "a", "new");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(reader), {}), "old");
}

TEST_F(Files, KeepTheOldContentWhenTheDiskIsFull) {
  const fs::path path = folder / "a";
  write_file_atomically(path, "old");
  const std::string message = message_of(ErrorCode::io, [&] {
    const FileSizeLimit limit(4096);
    write_file_atomically(path, std::string(100'000, 'n'));
  });
  EXPECT_THAT(message, AllOf(HasSubstr(path.string()), HasSubstr("File too large")));
  EXPECT_EQ(read_file(path), "old");
  EXPECT_THAT(names(), testing::ElementsAre("a")) << "the part written so far is still there";
}

TEST_F(Files, SayThatThereIsNoSpaceLeft) {
  EXPECT_THAT(message_of(ErrorCode::io, [] { write_file_atomically("/dev/full", "x"); }),
              AllOf(HasSubstr("/dev/full"), HasSubstr("No space left on device"),
                    HasSubstr("free some space")));
}

TEST_F(Files, LeaveDevicesAndPipesInPlace) {
  write_file_atomically("/dev/null", "x");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  fs::create_symlink("/dev/null", folder / "link");
  write_file_atomically(folder / "link", "x");
  EXPECT_TRUE(fs::is_character_file(folder / "link"));
}

TEST_F(Files, ClearTemporariesOfAKilledProcess) {
  for (int kills = 0; kills < 20; ++kills) {
    const pid_t writer = ::fork();
    if (writer == 0)
      for (;;) write_file_atomically(folder / "a", std::string(100'000, 'x'));
    while (!fs::exists(folder / "a")) std::this_thread::yield();
    // The kill can hit any moment of a write.
    std::this_thread::sleep_for(std::chrono::microseconds(300 * kills));
    ::kill(writer, SIGKILL);
    ::waitpid(writer, nullptr, 0);
    // This file looks like the temporary of another host.
    std::ofstream(folder / ".a.4711-0.tmp") << "half";
    write_file_atomically(folder / "a", "whole");
    EXPECT_THAT(names(), testing::ElementsAre("a"));
  }
  std::ofstream(folder / ".probe.4711-12.tmp") << "x";
  require_writable_folder(folder);
  EXPECT_THAT(names(), testing::ElementsAre("a"));
}

TEST_F(Files, LeaveOtherFilesAndLockedTemporariesAlone) {
  const std::vector<std::string> others = {".a.12-0.tmp.old", ".a.notes.tmp", ".a.tmp",
                                           ".b.12-0.tmp", "a.12-0.tmp"};
  for (const std::string& name : others) std::ofstream(folder / name) << "x";
  const std::string busy = folder / ".a.12-3.tmp";
  const int writer = ::open(busy.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  ASSERT_EQ(::flock(writer, LOCK_EX), 0);
  fs::create_symlink("a.12-0.tmp", folder / ".a.7-7.tmp");
  write_file_atomically(folder / "a", "whole");
  for (const std::string& name : others) EXPECT_THAT(names(), testing::Contains(name));
  EXPECT_TRUE(fs::exists(busy));
  EXPECT_TRUE(fs::is_symlink(folder / ".a.7-7.tmp"));
  ::close(writer);
  write_file_atomically(folder / "a", "whole");
  EXPECT_FALSE(fs::exists(busy));
}

TEST_F(Files, AreWrittenByManyAtOnce) {
  std::vector<std::thread> writers;
  for (int i = 0; i < 4; ++i)
    writers.emplace_back([&] {
      for (int n = 0; n < 25; ++n) EXPECT_NO_THROW(write_file_atomically(folder / "a", "x"));
    });
  for (std::thread& writer : writers) writer.join();
  EXPECT_THAT(names(), testing::ElementsAre("a"));
}

TEST_F(Files, WriteThroughALink) {
  write_file_atomically(folder / "target", "old");
  fs::create_symlink("target", folder / "link");
  write_file_atomically(folder / "link", "new");
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_EQ(read_file(folder / "target"), "new");
}

TEST_F(Files, KeepThePermissionsOfTheReplacedFile) {
  write_file_atomically(folder / "secret", "old");
  ASSERT_EQ(::chmod((folder / "secret").c_str(), 0600), 0);
  write_file_atomically(folder / "secret", "new");
  EXPECT_EQ(fs::status(folder / "secret").permissions(),
            fs::perms::owner_read | fs::perms::owner_write);
}

TEST_F(Files, NameThePathAndReasonWhenTheyCannotBeWritten) {
  EXPECT_THAT(
      message_of(ErrorCode::io, [&] { write_file_atomically(folder / "none" / "a", "x"); }),
      AllOf(HasSubstr("none/a"), HasSubstr("No such file or directory")));
  EXPECT_THAT(message_of(ErrorCode::io, [&] { write_file_atomically(folder, "x"); }),
              AllOf(HasSubstr(folder.string()), HasSubstr("Is a directory")));
  EXPECT_THAT(names(), testing::IsEmpty());
}

TEST_F(Files, WithARelativePathAreWrittenInTheCurrentFolder) {
  const fs::path before = fs::current_path();
  fs::current_path(folder);
  write_file_atomically("a", "x");
  fs::current_path(before);
  EXPECT_EQ(read_file(folder / "a"), "x");
}

TEST_F(Files, ThatDoNotExistAreNotFound) {
  EXPECT_THAT(message_of(ErrorCode::not_found, [&] { read_file(folder / "a"); }),
              HasSubstr((folder / "a").string()));
  write_file_atomically(folder / "a", "x");
  EXPECT_THAT(message_of(ErrorCode::not_found, [&] { read_file(folder / "a" / "b"); }),
              HasSubstr("a/b"));
}

TEST_F(Files, ExistUnlessALinkLeadsNowhereOrToItself) {
  fs::create_symlink(folder, folder / "link");
  fs::create_symlink("nowhere", folder / "lost");
  fs::create_symlink("loop", folder / "loop");
  EXPECT_TRUE(path_exists(folder / "link"));
  EXPECT_FALSE(path_exists(folder / "lost"));
  EXPECT_FALSE(path_exists(folder / "absent" / "x"));
  EXPECT_THAT(message_of(ErrorCode::io, [&] { path_exists(folder / "loop"); }),
              AllOf(HasSubstr((folder / "loop").string()),
                    HasSubstr("Too many levels of symbolic links"), HasSubstr("; try: ")));
}

TEST_F(Files, ThatAreFoldersCannotBeRead) {
  EXPECT_THAT(message_of(ErrorCode::io, [&] { read_file(folder); }),
              AllOf(HasSubstr(folder.string()), HasSubstr("Is a directory")));
}

TEST_F(Files, MakeTheirFolderWithItsParents) {
  require_writable_folder(folder / "a" / "b");
  EXPECT_TRUE(fs::is_directory(folder / "a" / "b"));
  EXPECT_TRUE(fs::is_empty(folder / "a" / "b"));
  EXPECT_NO_THROW(require_writable_folder(folder / "a" / "b"));
}

TEST_F(Files, TakeAnEmptyPathForTheWorkingDirectory) {
  const fs::path before = fs::current_path();
  fs::current_path(folder);
  EXPECT_NO_THROW(require_writable_folder(fs::path("report.json").parent_path()));
  fs::current_path(before);
  EXPECT_EQ(names().size(), 0u);
}

TEST_F(Files, RefuseAFolderThatCannotBeMadeOrWritten) {
  write_file_atomically(folder / "file", "x");
  EXPECT_THAT(message_of(ErrorCode::io, [&] { require_writable_folder(folder / "file"); }),
              HasSubstr((folder / "file").string()));
  EXPECT_THAT(message_of(ErrorCode::io, [&] { require_writable_folder(folder / "file" / "sub"); }),
              AllOf(HasSubstr("file/sub"), HasSubstr("Not a directory")));
  EXPECT_THAT(message_of(ErrorCode::io, [] { require_writable_folder("/proc/self"); }),
              HasSubstr("/proc/self"));
  const std::string full = message_of(ErrorCode::io, [&] {
    const FileSizeLimit limit(0);
    require_writable_folder(folder);
  });
  EXPECT_THAT(full, AllOf(HasSubstr(folder.string()), HasSubstr("File too large")));
  EXPECT_THAT(names(), testing::ElementsAre("file"));
}

}  // namespace
}  // namespace trireme::files_test
