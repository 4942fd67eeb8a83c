// Links among checkpoints. They are read through, but removed as links; nothing is removed or
// written through them.
#include <gmock/gmock.h>
#include <trireme/base/log.h>
#include <trireme/checkpoint/parts.h>
#include <trireme/checkpoint/step_name.h>
#include <atomic>
#include <map>
#include <thread>

#include "folder_testing.h"
#include "tracing_file_system.h"

namespace trireme::checkpoint::links_test {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;

class Links : public CheckpointFolder {
 protected:
  Links() {
    set_log_level(LogLevel::error);
    Folder archive(archive_, {.keep = 9});
    for (const int step : {1, 2, 3}) save(archive, step);
    fs::create_directories(archive_ / "notes");
    overwrite(archive_ / "notes" / "text", "of mine");
    before_ = content_of(archive_);
    fs::create_directories(runs_);
  }
  ~Links() override {
    EXPECT_EQ(content_of(archive_), before_) << "the archive was changed";
    set_log_level(LogLevel::info);
  }

  // Returns every path in a folder with the content of its file.
  static std::map<fs::path, std::string> content_of(const fs::path& folder) {
    std::map<fs::path, std::string> content;
    for (const auto& entry : fs::recursive_directory_iterator(folder))
      if (entry.path().filename() != ".lock")
        content[entry.path()] = entry.is_regular_file() ? read_file(entry.path()) : "";
    return content;
  }
  void link(const std::string& name, const fs::path& to) {
    fs::create_directory_symlink(to, runs_ / name);
  }

  fs::path archive_ = folder_ / "archive";
  std::map<fs::path, std::string> before_;
};

TEST_F(Links, ToCheckpointsAreReadAndCountAsCheckpoints) {
  link("step-000000003", archive_ / "step-000000003");
  EXPECT_TRUE(has_checkpoints(runs_));
  Folder folder(runs_, {.keep = 2});
  EXPECT_EQ(newest_step(folder), 3);
  save(folder, 4);
  EXPECT_THAT(names_in(runs_), ElementsAre(".lock", "step-000000003", "step-000000004"));
}

TEST_F(Links, ThatAreOutdatedAreRemovedWithoutTheirTargets) {
  link("step-000000001", archive_ / "step-000000001");
  link("step-000000002", "../../archive/step-000000002");
  Folder folder(runs_, {.keep = 1});
  save(folder, 5);
  EXPECT_THAT(names_in(runs_), ElementsAre(".lock", "step-000000005"));
}

TEST_F(Links, ArePrunedWithoutTheirTargets) {
  for (const int64_t step : {1, 2, 3}) link(name_of_step(step), archive_ / name_of_step(step));
  Folder folder(runs_, {.keep = 1});
  EXPECT_THAT(folder.prune(), ElementsAre(2, 1));
  EXPECT_THAT(names_in(runs_), ElementsAre(".lock", "step-000000003"));
}

TEST_F(Links, InsideACheckpointAreRemovedWithoutTheirTargets) {
  Folder folder(runs_, {.keep = 1});
  const fs::path old = save(folder, 4);
  fs::create_directory_symlink(archive_, old / "archive");
  fs::create_directories(old / "deep" / "deeper");
  fs::create_directory_symlink(archive_ / "notes", old / "deep" / "deeper" / "notes");
  fs::create_symlink(archive_ / "notes" / "text", old / "text");
  fs::create_symlink("..", old / "above");
  fs::create_symlink("loop", old / "loop");
  fs::remove(old / "model.safetensors");
  fs::create_symlink(archive_ / "step-000000001" / "model.safetensors", old / "model.safetensors");
  fs::create_hard_link(archive_ / "notes" / "text", old / "hard");
  save(folder, 5);
  EXPECT_THAT(names_in(runs_), ElementsAre(".lock", "step-000000005"));
}

TEST_F(Links, UnderTheNameOfAnUnfinishedOneAreRemovedNotWrittenThrough) {
  link(".writing-step-000000005", archive_ / "step-000000001");
  link(".writing-step-000000006", archive_ / "nowhere");
  {
    Folder folder(runs_);
    EXPECT_THAT(names_in(runs_), ElementsAre(".lock"));
    // The link is made while the folder is open.
    link(".writing-step-000000005", archive_ / "step-000000001");
    save(folder, 5);
  }
  EXPECT_THAT(names_in(runs_), ElementsAre("step-000000005"));
  EXPECT_FALSE(fs::is_symlink(runs_ / "step-000000005"));

  link(".writing-step-000000006+a", archive_ / "step-000000001");
  EXPECT_TRUE(fails_with(ErrorCode::io, {".writing-step-000000006+a"},
                         [&] { open_unfinished(disk(), runs_ / ".writing-step-000000006+a"); }));
}

TEST_F(Links, OfTheSameStepAreReplacedNotWrittenThrough) {
  for (const char* target : {"step-000000002", "nowhere"}) {
    link("step-000000007", archive_ / target);
    Folder folder(runs_);
    save(folder, 7);
    EXPECT_FALSE(fs::is_symlink(runs_ / "step-000000007"));
    EXPECT_EQ(newest_step(folder), 7);
    fs::remove_all(runs_ / "step-000000007");
  }
}

TEST_F(Links, ThatLeadNowhereOrInACircleAreNoCheckpoints) {
  link("step-000000008", "nowhere");
  link("step-000000009", "step-000000009");
  EXPECT_FALSE(has_checkpoints(runs_));
  Folder folder(runs_, {.keep = 1});
  EXPECT_FALSE(folder.newest());
  save(folder, 5);
  EXPECT_EQ(newest_step(folder), 5);
}

TEST_F(Links, OneMovedAsideComesBackInThePlaceOfALinkToNowhere) {
  {
    Folder folder(runs_);
    fs::rename(save(folder, 5), runs_ / ".replaced-step-000000005");
  }
  link("step-000000005", "nowhere");
  const Folder folder(runs_);
  EXPECT_EQ(newest_step(folder), 5);
  EXPECT_FALSE(fs::is_symlink(runs_ / "step-000000005"));
}

TEST_F(Links, TheFolderItselfMayBeOne) {
  fs::remove(runs_);
  const fs::path real = folder_ / "real";
  fs::create_directory(real);
  fs::create_directory_symlink(real, runs_);
  Folder folder(runs_ / "", {.keep = 1});  // The name has a slash at its end.
  save(folder, 4);
  save(folder, 5);
  EXPECT_THAT(names_in(real), ElementsAre(".lock", "step-000000005"));
}

TEST_F(Links, TheLockIsNotWrittenThroughOne) {
  fs::create_symlink(archive_ / "notes" / "text", runs_ / ".lock");
  const Folder folder(runs_);
  EXPECT_FALSE(fs::is_symlink(runs_ / ".lock"));
  EXPECT_TRUE(fails_with(ErrorCode::invalid_argument, {"in use"}, [&] { Folder second(runs_); }));
}

TEST_F(Links, AFileOfTheNameIsReplacedNotWrittenThrough) {
  const fs::path text = archive_ / "notes" / "text";
  for (const bool hard : {false, true}) {
    const fs::path path = runs_ / (hard ? "hard" : "soft");
    hard ? fs::create_hard_link(text, path) : fs::create_symlink(text, path);
    const auto file = disk().create(path);
    file->write(std::as_bytes(std::span("new", 3)));
    EXPECT_EQ(read_file(path), "new");
  }
}

// The link exists from the start, or takes a folder's place while the folder is removed.
TEST_F(Links, TakingAFoldersPlaceWhileItIsRemovedAreNotFollowed) {
  std::atomic<bool> stop = false;
  std::jthread swapper([&] {
    while (!stop) {
      std::error_code ignored;
      fs::remove(runs_ / "tree" / "in", ignored);
      fs::create_directory_symlink(archive_, runs_ / "tree" / "in", ignored);
      fs::remove(runs_ / "tree" / "in", ignored);
      fs::create_directory(runs_ / "tree" / "in", ignored);
    }
  });
  for (int i = 0; i < 200; ++i) {
    std::error_code ignored;
    fs::create_directories(runs_ / "tree" / "in", ignored);
    try {
      disk().remove_tree(runs_ / "tree");
    } catch (const Error&) {
      // The other thread created something in it.
    }
  }
  stop = true;
}

// One of several outdated checkpoints cannot be removed; the others are removed all the same.
TEST_F(Links, ACheckpointThatCannotBeRemovedDoesNotKeepOthers) {
  class Stubborn : public TracingFileSystem {
   public:
    void rename(const fs::path& from, const fs::path& to) override {
      if (from.filename() == "step-000000002") refuse("rename", from, EPERM);
      TracingFileSystem::rename(from, to);
    }
  } files;
  {
    Folder folder(runs_, {.keep = 3});
    for (const int step : {1, 2, 3}) save(folder, step);
  }
  Folder folder(runs_, {.keep = 1}, files);
  EXPECT_TRUE(
      fails_with(ErrorCode::io, {"step-000000002", "not permitted"}, [&] { folder.prune(); }));
  EXPECT_THAT(names_in(runs_), ElementsAre(".lock", "step-000000002", "step-000000003"));
  save(folder, 4);
  EXPECT_THAT(names_in(runs_), ElementsAre(".lock", "step-000000002", "step-000000004"));
}

}  // namespace
}  // namespace trireme::checkpoint::links_test
