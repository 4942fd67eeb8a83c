#include <trireme/checkpoint/move_aside.h>

#include <gmock/gmock.h>

#include "folder_testing.h"
#include "tracing_file_system.h"

namespace trireme::checkpoint::move_aside_test {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::UnorderedElementsAre;

class MoveAside : public CheckpointFolder {
 protected:
  MoveAside() : before_(fs::current_path()) {
    fill(runs_);
    folder_ = fs::canonical(folder_);
    runs_ = fs::canonical(runs_);
  }
  ~MoveAside() override { fs::current_path(before_); }

  static void fill(const fs::path& runs) {
    Folder folder(runs);
    save(folder, 1);
    save(folder, 2);
    fs::create_directory(runs / "faults");
    fs::create_directory(runs / writing_name_of_a_step());
    overwrite(runs / "config.yaml", "of mine");
  }
  static std::string writing_name_of_a_step() { return ".writing-step-000000003"; }
  // Expects that the folder was moved as a whole to a folder beside it.
  void expect_moved(const fs::path& to) const {
    EXPECT_FALSE(is_there(runs_));
    EXPECT_EQ(newest_in(to)->manifest.step, 2);
    EXPECT_TRUE(fs::exists(to / "config.yaml"));
  }

  fs::path before_;
};

TEST_F(MoveAside, TakesTheFolderWhateverItIsCalled) {
  const fs::path link = folder_ / "link";
  fs::create_directory_symlink(runs_.parent_path(), link);
  fs::create_directory(runs_.parent_path() / "other");
  fs::current_path(folder_);
  const std::string name = runs_.filename();
  for (const fs::path& called :
       {runs_, runs_ / "", fs::path(runs_.string() + "///"), runs_ / ".", runs_ / "." / "",
        fs::path("runs") / name, fs::path("runs") / name / "", fs::path("./runs/other/..") / name,
        fs::path("link") / name, link / "other" / ".." / name / "",
        link / name / "faults" / ".."}) {
    const fs::path moved = move_aside(disk(), called);
    EXPECT_EQ(moved, runs_.string() + ".old-1") << called;
    expect_moved(moved);
    fs::rename(moved, runs_);
  }
}

TEST_F(MoveAside, TakesTheNextNumberThatIsFree) {
  fs::create_directory(runs_.string() + ".old-1");
  fs::create_symlink("nowhere", runs_.string() + ".old-2");
  expect_moved(move_aside(disk(), runs_));
  EXPECT_TRUE(fs::is_directory(runs_.string() + ".old-3"));
}

TEST_F(MoveAside, TakesALinkAndLeavesItsTarget) {
  fs::create_directory_symlink(runs_, folder_ / "link");
  const fs::path moved = move_aside(disk(), folder_ / "link" / "");
  EXPECT_EQ(moved, folder_ / "link.old-1");
  EXPECT_TRUE(fs::is_symlink(moved));
  EXPECT_FALSE(is_there(folder_ / "link"));
  EXPECT_EQ(newest_in(runs_)->manifest.step, 2);
}

TEST_F(MoveAside, LeavesTheWorkingDirectoryWhereItIs) {
  for (const char* called : {".", "./", "../digits", "../digits/"}) {
    fs::current_path(runs_);
    const fs::path moved = move_aside(disk(), called, {"faults"});
    EXPECT_EQ(moved, runs_ / "old-1") << called;
    EXPECT_THAT(names_in(moved), UnorderedElementsAre("faults", "step-000000001", "step-000000002",
                                                      writing_name_of_a_step()));
    EXPECT_THAT(names_in(runs_), UnorderedElementsAre("config.yaml", "old-1"));
    EXPECT_FALSE(has_checkpoints("."));
    fs::remove_all(runs_);
    fill(runs_);
  }
  fs::create_directories(runs_ / "deep" / "deeper");
  fs::current_path(runs_ / "deep" / "deeper");
  EXPECT_EQ(move_aside(disk(), runs_), runs_ / "old-1");
  EXPECT_EQ(move_aside(disk(), "../.."), runs_ / "old-2");
}

// The root of a file system behaves like this.
TEST_F(MoveAside, LeavesAFolderThatCannotBeRenamed) {
  class Mounted : public TracingFileSystem {
   public:
    explicit Mounted(fs::path root) : root_(std::move(root)) {}
    void rename(const fs::path& from, const fs::path& to) override {
      if (from == root_) refuse("rename", from, EBUSY);
      TracingFileSystem::rename(from, to);
    }

   private:
    fs::path root_;
  } files(runs_);
  const fs::path moved = move_aside(files, runs_);
  EXPECT_EQ(moved, runs_ / "old-1");
  EXPECT_EQ(newest_in(moved)->manifest.step, 2);
  EXPECT_FALSE(has_checkpoints(runs_));
}

TEST_F(MoveAside, NamesAFolderThatCannotBeMoved) {
  EXPECT_TRUE(fails_with(ErrorCode::io, {"nowhere"},
                         [&] { move_aside(disk(), folder_ / "nowhere" / "x"); }));
  EXPECT_THAT(names_in(runs_.parent_path()), ElementsAre("digits"));
}

}  // namespace
}  // namespace trireme::checkpoint::move_aside_test
