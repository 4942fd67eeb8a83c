#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <trireme/base/error.h>
#include <trireme/membership/token_file.h>
#include <unistd.h>
#include <filesystem>
#include <fstream>
#include <thread>

namespace trireme::membership::token_file_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const TokenFile::Contents kContents{"secret", {"127.0.0.1", 4000}};
Deadline now() { return Deadline::after(Milliseconds(0)); }
Deadline soon() { return Deadline::after(Milliseconds(5000)); }

class TokenFileTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "trireme-token-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    root = name;
    folder = token_folder(Environment({{"XDG_RUNTIME_DIR", name}}));
  }
  void TearDown() override { fs::remove_all(root); }

  // Leaves a file like that of a process that was killed.
  fs::path leave_stale() {
    const pid_t child = ::fork();
    if (child == 0) {
      new TokenFile(TokenFile::create(folder, "job", {"old", {"127.0.0.1", 1}}));
      ::_exit(0);
    }
    int status = 1;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    for (const auto& entry : fs::directory_iterator(folder)) return entry.path();
    ADD_FAILURE() << "the child left no file";
    return {};
  }

  fs::path root;
  fs::path folder;
};

TEST_F(TokenFileTest, TellsOthersTheTokenAndTheCoordinator) {
  const TokenFile file = TokenFile::create(folder, "job", kContents);
  const auto contents = TokenFile::wait(folder, "job", now());
  ASSERT_TRUE(contents);
  EXPECT_EQ(contents->token, "secret");
  EXPECT_EQ(contents->coordinator.describe(), "127.0.0.1:4000");
}

TEST_F(TokenFileTest, IsForItsOwnerAlone) {
  const TokenFile file = TokenFile::create(folder, "job", kContents);
  struct stat facts {};
  ASSERT_EQ(::stat(file.path().c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0600u);
  ASSERT_EQ(::stat(folder.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0700u);
}

TEST_F(TokenFileTest, IsRemovedByItsCreatorOnly) {
  {
    const TokenFile file = TokenFile::create(folder, "job", kContents);
    const pid_t child = ::fork();
    if (child == 0) {
      const_cast<TokenFile&>(file).~TokenFile();
      ::_exit(0);
    }
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
    EXPECT_TRUE(fs::exists(file.path()));
  }
  EXPECT_TRUE(fs::is_empty(folder));
}

TEST_F(TokenFileTest, IsWaitedForUntilItIsThere) {
  std::optional<TokenFile::Contents> found;
  std::thread waiting([&] { found = TokenFile::wait(folder, "job", soon()); });
  const TokenFile file = TokenFile::create(folder, "job", kContents);
  waiting.join();
  EXPECT_TRUE(found);
}

TEST_F(TokenFileTest, IsNotWaitedForBeyondTheDeadline) {
  EXPECT_FALSE(TokenFile::wait(folder, "job", Deadline::after(Milliseconds(30))));
}

TEST_F(TokenFileTest, AFileOfADeadProcessCountsAsAbsentAndIsReplaced) {
  leave_stale();
  EXPECT_FALSE(TokenFile::wait(folder, "job", now()));
  const TokenFile file = TokenFile::create(folder, "job", kContents);
  EXPECT_EQ(TokenFile::wait(folder, "job", now())->token, "secret");
}

TEST_F(TokenFileTest, TheNextRunRemovesOnlyTheFilesOfDeadProcesses) {
  const Environment environment({{"XDG_RUNTIME_DIR", root.string()}});
  const fs::path stale = leave_stale();
  std::ofstream(folder / "elastic-4711.0123.token.4711") << "{";  // Its writer was killed.
  std::ofstream(folder / "elastic-1.0123.token");  // Another version of Trireme may own it.
  const TokenFile living = TokenFile::create(folder, "living", kContents);
  leave_stale();
  TokenFile::clear_abandoned(environment);
  std::vector<std::string> left;
  for (const auto& entry : fs::directory_iterator(folder)) left.push_back(entry.path().filename());
  EXPECT_THAT(left, testing::UnorderedElementsAre(living.path().filename().string(),
                                                  "elastic-1.0123.token"));
  EXPECT_FALSE(fs::exists(stale));
  TokenFile::clear_abandoned(
      Environment(std::map<std::string, std::string>{{"XDG_RUNTIME_DIR", "/nowhere"}}));
}

TEST_F(TokenFileTest, TheFileOfAWriterThatCannotBeSeenFromHereStays) {
  const fs::path path = leave_stale();
  std::string text;
  std::getline(std::ifstream(path), text);
  text.replace(text.find("pid:["), 5, "pid:[9");  // A process of another container.
  std::ofstream(path) << text;
  ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
  TokenFile::clear_abandoned(Environment({{"XDG_RUNTIME_DIR", root.string()}}));
  EXPECT_TRUE(fs::exists(path));
}

TEST_F(TokenFileTest, AFileWhoseProcessIdBelongsToAnotherProcessNowCountsAsAbsent) {
  const fs::path path = leave_stale();
  std::ofstream(path) << R"({"token":"old","host":"h","port":1,"started":1,"pid":)" << ::getpid()
                      << "}";
  EXPECT_FALSE(TokenFile::wait(folder, "job", now()));
}

TEST_F(TokenFileTest, ADamagedFileIsReplaced) {
  std::ofstream(leave_stale()) << "{\"token\":";
  EXPECT_FALSE(TokenFile::wait(folder, "job", now()));
  EXPECT_NO_THROW(TokenFile::create(folder, "job", kContents));
}

TEST_F(TokenFileTest, TheFileOfALivingJobIsNotReplaced) {
  const TokenFile file = TokenFile::create(folder, "job", kContents);
  try {
    TokenFile::create(folder, "job", {"other", {"127.0.0.1", 2}});
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.what(), HasSubstr(std::to_string(::getpid())));
  }
  EXPECT_EQ(TokenFile::wait(folder, "job", now())->token, "secret");
}

TEST_F(TokenFileTest, KeepsJobsApart) {
  const TokenFile one = TokenFile::create(folder, "a/b", kContents);
  const TokenFile other = TokenFile::create(folder, "a_b", {"other", {"127.0.0.1", 2}});
  const TokenFile outside = TokenFile::create(folder, "../../escape", kContents);
  EXPECT_EQ(TokenFile::wait(folder, "a/b", now())->token, "secret");
  EXPECT_EQ(TokenFile::wait(folder, "a_b", now())->token, "other");
  EXPECT_EQ(outside.path().parent_path(), folder);
}

TEST_F(TokenFileTest, AFileThatOthersMayReadIsRefused) {
  const TokenFile file = TokenFile::create(folder, "job", kContents);
  ASSERT_EQ(::chmod(file.path().c_str(), 0644), 0);
  EXPECT_THROW(TokenFile::wait(folder, "job", now()), Error);
}

TEST_F(TokenFileTest, AFolderThatOthersMayEnterIsRefused) {
  ASSERT_EQ(::chmod(folder.c_str(), 0755), 0);
  try {
    token_folder(Environment({{"XDG_RUNTIME_DIR", root.string()}}));
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.what(), HasSubstr("0755"));
  }
}

TEST_F(TokenFileTest, LiesInTmpWithoutARuntimeFolder) {
  EXPECT_EQ(token_folder(Environment()), "/tmp/trireme-" + std::to_string(::geteuid()));
}

}  // namespace
}  // namespace trireme::membership::token_file_test
