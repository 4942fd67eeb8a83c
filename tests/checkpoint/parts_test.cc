#include <trireme/checkpoint/parts.h>

#include <gmock/gmock.h>
#include <trireme/checkpoint/load.h>
#include <trireme/checkpoint/open_checkpoint.h>
#include <trireme/checkpoint/writer.h>
#include <atomic>
#include <chrono>
#include <latch>

#include "folder_testing.h"
#include "tracing_file_system.h"

namespace trireme::checkpoint::parts_test {
namespace {

using testing::ElementsAre;
using testing::UnorderedElementsAre;

class Parts : public CheckpointFolder {
 protected:
  // Part 0 saves the weight, and each part saves its own moment m0, m1, ...
  static void save(Writer& writer, int64_t step, int index, int count) {
    Manifest manifest;
    manifest.step = step;
    const OwnedTensor weight("w", {64}, plan::DType::float32, static_cast<int>(step));
    const OwnedTensor moment("m" + std::to_string(index), {100 + index}, plan::DType::float32,
                             index);
    std::vector<TensorView> model;
    if (index == 0) model.push_back(weight.view());
    writer.save(manifest, model, {moment.view()},
                {index, count, "job-" + std::to_string(step), {0, 4, 8}});
  }
  Writer other(FileSystem& files = disk()) { return {runs_, files, {}}; }
};

TEST_F(Parts, MakeOneCheckpointInAnyOrder) {
  Writer first{Folder(runs_, {.keep = 9})}, second = other(), third = other();
  save(second, 5, 1, 3);
  save(first, 5, 0, 3);
  save(third, 5, 2, 3);
  save(first, 6, 0, 3);
  save(third, 6, 2, 3);
  save(second, 6, 1, 3);
  first.wait();
  EXPECT_THAT(first.take_saved(), ElementsAre(runs_ / "step-000000005", runs_ / "step-000000006"));
  EXPECT_THAT(names_in(runs_), ElementsAre(".lock", "step-000000005", "step-000000006"));
  EXPECT_THAT(
      names_in(runs_ / "step-000000005"),
      ElementsAre("history.safetensors", "manifest.json", "model.safetensors",
                  "optimizer-1.safetensors", "optimizer-2.safetensors", "optimizer.safetensors",
                  "pieces-1.safetensors", "pieces-2.safetensors", "pieces.safetensors"));
  const Saved saved = open_checkpoint(runs_ / "step-000000005");
  EXPECT_EQ(first_weight(saved), 5);
  for (int part = 0; part < 3; ++part)
    EXPECT_EQ(saved.optimizer->find("m" + std::to_string(part))->bytes.size(), 400u + 4u * part);
  EXPECT_EQ(saved.optimizer->tensors().size(), 3u);
  for (const auto& [file, rank] : std::map<std::string, int>{
           {"model.safetensors", 0}, {"optimizer-1.safetensors", 4}, {"pieces-2.safetensors", 8}})
    EXPECT_EQ(saved.manifest.writers.at(file), rank) << file;
}

TEST_F(Parts, AreReadIntoTheirPlacesInOnePass) {
  Writer first{Folder(runs_)}, second = other();
  save(second, 5, 1, 2);
  save(first, 5, 0, 2);
  first.wait();
  std::vector<std::byte> own(400), others(404);
  const auto saved = load_newest(runs_, [&](const Saved& found) {
    return std::vector<Destination>{{found.optimizer->find("m1"), others},
                                    {found.optimizer->find("m0"), own}};
  });
  ASSERT_TRUE(saved);
  const OwnedTensor moment("m1", {101}, plan::DType::float32, 1);
  EXPECT_TRUE(std::equal(others.begin(), others.end(), moment.bytes.begin(), moment.bytes.end()));
}

TEST_F(Parts, ADamagedOrMissingOneCostsTheCheckpointAndNoOlderOne) {
  for (const bool missing : {true, false}) {
    Writer first{Folder(runs_, {.keep = 9})}, second = other();
    for (const int64_t step : {5, 6}) {
      save(second, step, 1, 2);
      save(first, step, 0, 2);
    }
    first.wait();
    const auto path = runs_ / "step-000000006" / "optimizer-1.safetensors";
    if (missing)
      std::filesystem::remove(path);
    else
      flip_bit(path, std::filesystem::file_size(path) - 1);
    EXPECT_TRUE(fails_with(ErrorCode::corrupt, {path.string()},
                           [&] { open_checkpoint(path.parent_path()); }));
    EXPECT_EQ(
        load_newest(runs_, [](const Saved&) { return std::vector<Destination>(); })->manifest.step,
        5);
    std::filesystem::remove_all(path.parent_path());
  }
}

TEST_F(Parts, AMissingOneAbandonsTheCheckpointAndTheNextIsWhole) {
  Writer first{Folder(runs_, {.keep = 9})}, second = other();
  save(first, 5, 0, 2);
  first.expect_no_more(std::chrono::milliseconds(50));
  first.wait();
  EXPECT_TRUE(first.take_saved().empty());
  EXPECT_THAT(names_in(runs_), ElementsAre(".lock"));
  save(second, 6, 1, 2);
  save(first, 6, 0, 2);
  first.wait();
  EXPECT_THAT(first.take_saved(), ElementsAre(runs_ / "step-000000006"));
}

// The waiting thread is the one that learns that a worker was lost.
TEST_F(Parts, AWaitForThemEndsWhenAWorkerIsLost) {
  std::atomic<int> asked = 0;
  Writer first(Folder(runs_), {.others_live = [&] { return ++asked < 3; }});
  save(first, 5, 0, 2);
  const auto began = std::chrono::steady_clock::now();
  first.wait();
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::minutes(1));
  EXPECT_GE(asked, 3);
  EXPECT_TRUE(first.take_saved().empty());
}

TEST_F(Parts, AShortWaitSeesToo) {
  std::atomic<int> asked = 0;
  Writer first(Folder(runs_), {.others_live = [&] { return ++asked < 3; }});
  save(first, 5, 0, 2);
  EXPECT_FALSE(first.is_done_within(std::chrono::milliseconds(1)));
  EXPECT_TRUE(first.is_done_within(std::chrono::minutes(1)));
  EXPECT_TRUE(first.take_saved().empty());
}

TEST_F(Parts, SavesThatHaveNotBegunWhenTheGenerationEndsAreDropped) {
  class Held : public TracingFileSystem {
   public:
    std::latch begun{1}, go_on{1};
    void make_folder(const std::filesystem::path& path) override {
      begun.count_down();
      go_on.wait();
      TracingFileSystem::make_folder(path);
    }
  } files;
  std::filesystem::create_directories(runs_);
  {
    Writer second = other(files);
    save(second, 5, 1, 2);
    files.begun.wait();
    save(second, 6, 1, 2);
    second.expect_no_more();
    files.go_on.count_down();
  }
  EXPECT_THAT(names_in(runs_), ElementsAre(".writing-step-000000005+job-5"));
}

TEST_F(Parts, WithoutABackgroundTheOthersAreWaitedForAsLongAsTheyLive) {
  int asked = 0;
  Writer first(Folder(runs_), {.background = false, .others_live = [&] { return ++asked < 3; }});
  EXPECT_TRUE(fails_with(ErrorCode::peer_lost, {"rank 4, rank 8", "step-000000005"},
                         [&] { save(first, 5, 0, 3); }));
  EXPECT_EQ(asked, 3);
  EXPECT_THAT(names_in(runs_), ElementsAre(".lock"));
}

TEST_F(Parts, AFailedWriteOfOneIsReportedByTheFirst) {
  TracingFileSystem files;
  Writer first{Folder(runs_)}, second = other(files);
  open_unfinished(disk(), unfinished_path(runs_, 5, {1, 2, "job-5"}));
  files.fail_at = 0;  // The write of its file fails.
  save(second, 5, 1, 2);
  save(first, 5, 0, 2);
  EXPECT_TRUE(fails_with(
      ErrorCode::io,
      {"rank 4 could not write its part", "optimizer-1.safetensors", "Input/output error"},
      [&] { first.wait(); }));
  second.wait();
  EXPECT_THAT(names_in(runs_), ElementsAre(".lock"));
}

TEST_F(Parts, OneThatCannotLeaveANoteFailsItself) {
  TracingFileSystem files;
  files.free_bytes = 0;
  Writer second = other(files);
  std::filesystem::create_directories(runs_);
  save(second, 5, 1, 2);
  EXPECT_TRUE(fails_with(ErrorCode::io, {"No space left on device"}, [&] { second.wait(); }));
}

TEST_F(Parts, WithATensorInTwoOfThemAreCorrupt) {
  Folder folder(runs_);
  const OwnedTensor moment("m", {3}, plan::DType::float32, 1);
  const Part first{0, 2, "a"}, second{1, 2, "a"};
  write_part(disk(), runs_, 5, second, TensorFiles({}, {moment.view()}, 1).content());
  Manifest manifest;
  manifest.step = 5;
  const auto path = folder.save(manifest, TensorFiles({}, {moment.view()}).content(), first,
                                [] { return false; });
  EXPECT_TRUE(
      fails_with(ErrorCode::corrupt, {"'m'", "another file"}, [&] { open_checkpoint(path); }));
}

TEST_F(Parts, AreKnownByTheirNames) {
  Manifest manifest;
  for (const char* name :
       {"optimizer.safetensors", "optimizer-1.safetensors", "optimizer-12.safetensors",
        "optimizer-0.safetensors", "optimizer-01.safetensors", "optimizer-x.safetensors",
        "optimizer-.safetensors", "optimizer-1.json", "optimizer-1", "model.safetensors"})
    manifest.files[name] = "";
  EXPECT_THAT(files_of_parts(manifest, "optimizer.safetensors"),
              UnorderedElementsAre("optimizer.safetensors", "optimizer-1.safetensors",
                                   "optimizer-12.safetensors"));
  EXPECT_THAT(files_of_parts(manifest, "model.safetensors"), ElementsAre("model.safetensors"));
}

}  // namespace
}  // namespace trireme::checkpoint::parts_test
