#include <trireme/checkpoint/folder.h>

#include <gmock/gmock.h>
#include <trireme/base/version.h>
#include <trireme/checkpoint/digest.h>

#include "file_size_limit.h"
#include "folder_testing.h"

namespace trireme::checkpoint::folder_test {
namespace {

using testing::ElementsAre;

TEST_F(CheckpointFolder, IsEmptyAtFirst) {
  EXPECT_FALSE(has_checkpoints(runs_));
  const Folder folder(runs_);
  EXPECT_FALSE(has_checkpoints(runs_));
  EXPECT_FALSE(folder.newest());
  EXPECT_THAT(names_in(runs_), ElementsAre(".lock"));
}

TEST_F(CheckpointFolder, GivesBackWhatWasSaved) {
  Folder folder(runs_);
  const auto path = save(folder, 7);
  EXPECT_EQ(path, runs_ / "step-000000007");
  EXPECT_THAT(names_in(path),
              ElementsAre("history.safetensors", "manifest.json", "model.safetensors",
                          "optimizer.safetensors", "pieces.safetensors"));
  EXPECT_TRUE(has_checkpoints(runs_));
  const auto saved = folder.newest();
  ASSERT_TRUE(saved);
  EXPECT_EQ(saved->path, path);
  EXPECT_EQ(saved->manifest.step, 7);
  EXPECT_EQ(saved->manifest.version, version());
  EXPECT_EQ(saved->manifest.loss_history.size(), 7u);
  EXPECT_EQ(saved->manifest.files.at("model.safetensors"),
            digest_of_file(path / "model.safetensors", "xxh3-256k:", 1));
  EXPECT_EQ(first_weight(*saved), 7);
  EXPECT_NE(saved->optimizer->find("w.exp_avg"), nullptr);
  for (const auto& [file, digest] : saved->manifest.files)
    EXPECT_EQ(saved->manifest.writers.at(file), 0) << file;
}

TEST_F(CheckpointFolder, KeepsTheNewestFewOnly) {
  Folder folder(runs_, {.keep = 2});
  for (const int step : {5, 10, 15, 20}) save(folder, step);
  EXPECT_THAT(names_in(runs_), ElementsAre(".lock", "step-000000015", "step-000000020"));
}

TEST_F(CheckpointFolder, NeverRemovesTheOneJustSaved) {
  Folder folder(runs_, {.keep = 1});
  save(folder, 100);
  // The run went back, for example after damage to step 100.
  save(folder, 40);
  EXPECT_THAT(names_in(runs_), ElementsAre(".lock", "step-000000040", "step-000000100"));
  save(folder, 60);
  EXPECT_THAT(names_in(runs_), ElementsAre(".lock", "step-000000060", "step-000000100"));
}

TEST_F(CheckpointFolder, ReplacesACheckpointOfTheSameStep) {
  Folder folder(runs_);
  save(folder, 7, 1);
  save(folder, 7, 2);
  EXPECT_THAT(names_in(runs_), ElementsAre(".lock", "step-000000007"));
  EXPECT_EQ(first_weight(*folder.newest()), 2);
}

TEST_F(CheckpointFolder, LeavesOtherPeoplesFilesAlone) {
  std::filesystem::create_directories(runs_ / ".writing-notes");
  overwrite(runs_ / "step-12.txt", "notes");
  std::filesystem::create_directories(runs_ / "step-7");
  Folder folder(runs_, {.keep = 1});
  save(folder, 7);
  save(folder, 8);
  EXPECT_THAT(names_in(runs_),
              ElementsAre(".lock", ".writing-notes", "step-000000008", "step-12.txt", "step-7"));
  EXPECT_EQ(newest_step(folder), 8);
}

TEST_F(CheckpointFolder, CanBeReadWhereItCannotBeWritten) {
  Folder folder(runs_);
  const auto path = save(folder, 3);
  EXPECT_EQ(open_checkpoint(path).manifest.step, 3);
  EXPECT_TRUE(fails_with(ErrorCode::not_found, {"step-000000004"},
                         [&] { open_checkpoint(runs_ / "step-000000004"); }));
}

TEST_F(CheckpointFolder, AFullDiskLeavesTheOlderOnesWhole) {
  Folder folder(runs_);
  save(folder, 5, 1);
  Manifest manifest;
  manifest.step = 5;
  const OwnedTensor big("w", {1 << 18}), small("w", {1});
  for (const bool model_is_big : {true, false}) {
    const FileSizeLimit limit(100'000);
    const std::string culprit = model_is_big ? "model.safetensors" : "optimizer.safetensors";
    EXPECT_TRUE(fails_with(ErrorCode::io,
                           {culprit, "File too large after 100000 bytes", "another disk"}, [&] {
                             folder.save(manifest, {model_is_big ? big.view() : small.view()},
                                         {model_is_big ? small.view() : big.view()});
                           }));
  }
  EXPECT_THAT(names_in(runs_), ElementsAre(".lock", "step-000000005"));
  EXPECT_EQ(first_weight(*folder.newest()), 1);
}

TEST_F(CheckpointFolder, AFullDiskAtTheManifestOrTheHistoryIsReportedToo) {
  Folder folder(runs_);
  save(folder, 5);
  Manifest long_text, long_history;
  long_text.step = long_history.step = 6;
  long_text.config = {{"text", std::string(100'000, 'x')}};
  long_history.loss_history.assign(100'000, 0.1);
  for (const auto& [manifest, culprit] :
       {std::pair{long_text, "manifest.json"}, {long_history, "history.safetensors"}}) {
    const FileSizeLimit limit(100'000);
    EXPECT_TRUE(fails_with(ErrorCode::io, {culprit, "File too large"},
                           [&] { folder.save(manifest, std::vector<TensorView>{}, {}); }));
  }
  EXPECT_THAT(names_in(runs_), ElementsAre(".lock", "step-000000005"));
}

TEST_F(CheckpointFolder, AnUnwritableFolderIsReportedAtOnce) {
  overwrite(folder_ / "file", "in the way");
  EXPECT_TRUE(
      fails_with(ErrorCode::io, {folder_ / "file"}, [&] { Folder folder(folder_ / "file"); }));
  EXPECT_TRUE(fails_with(ErrorCode::io, {"/proc/self/fdinfo"},
                         [&] { Folder folder("/proc/self/fdinfo"); }));
  EXPECT_TRUE(fails_with(ErrorCode::invalid_argument, {"keep is 0"},
                         [&] { Folder folder(runs_, {.keep = 0}); }));
}

TEST_F(CheckpointFolder, AFolderThatVanishedIsAnErrorNotACrash) {
  Folder folder(runs_);
  std::filesystem::remove_all(runs_);
  EXPECT_TRUE(
      fails_with(ErrorCode::io, {"step-000000001", "No such file"}, [&] { save(folder, 1); }));
  EXPECT_TRUE(fails_with(ErrorCode::io, {runs_, "No such file"}, [&] { folder.newest(); }));
}

}  // namespace
}  // namespace trireme::checkpoint::folder_test
