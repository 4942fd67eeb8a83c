// Damage to checkpoints: the newest whole one is used, and each damaged one is named.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <trireme/base/log.h>

#include "folder_testing.h"

namespace trireme::checkpoint::damaged_checkpoint_test {
namespace {

using testing::HasSubstr;

class DamagedCheckpoint : public CheckpointFolder {
 protected:
  DamagedCheckpoint() : checkpoints_(runs_, {.keep = 3}) {
    for (const int step : {10, 20, 30}) save(checkpoints_, step);
  }
  std::filesystem::path file(int step, const std::string& name) const {
    return runs_ / fmt::format("step-{:09}", step) / name;
  }
  // Returns the step that is used after damage to `path`. The log has to name the file.
  int64_t used_after_damage_to(const std::filesystem::path& path, const std::string& reason) {
    testing::internal::CaptureStderr();
    const int64_t step = newest_step(checkpoints_);
    const std::string log = testing::internal::GetCapturedStderr();
    EXPECT_THAT(log, HasSubstr(path.string()));
    EXPECT_THAT(log, HasSubstr(reason));
    return step;
  }

  Folder checkpoints_;
};

TEST_F(DamagedCheckpoint, AFlippedBitOfAWeightIsFound) {
  const auto path = file(30, "model.safetensors");
  flip_bit(path, std::filesystem::file_size(path) - 1);
  EXPECT_EQ(used_after_damage_to(path, "was changed or cut off"), 20);
}

TEST_F(DamagedCheckpoint, ATruncatedFileIsFound) {
  const auto path = file(30, "optimizer.safetensors");
  std::filesystem::resize_file(path, 100);
  EXPECT_EQ(used_after_damage_to(path, "was changed or cut off"), 20);
}

TEST_F(DamagedCheckpoint, AMissingFileIsFound) {
  for (const char* name : {"model.safetensors", "optimizer.safetensors", "history.safetensors",
                           "pieces.safetensors", "manifest.json"}) {
    const auto path = file(30, name);
    const auto aside = runs_ / "aside";
    std::filesystem::rename(path, aside);
    EXPECT_EQ(used_after_damage_to(path, std::string(name) == "manifest.json"
                                             ? "is missing"
                                             : "is missing; rank 0 wrote it"),
              20);
    std::filesystem::rename(aside, path);
  }
  EXPECT_EQ(newest_step(checkpoints_), 30);
}

TEST_F(DamagedCheckpoint, ATornManifestIsFound) {
  const auto path = file(30, "manifest.json");
  std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
  EXPECT_EQ(used_after_damage_to(path, "is not a manifest"), 20);
}

TEST_F(DamagedCheckpoint, AChangedPositionInTheManifestIsFound) {
  const auto path = file(30, "manifest.json");
  flip_bit(path, read_file(path).find("\"consumed\":0") + 11);
  EXPECT_EQ(used_after_damage_to(path, "was changed"), 20);
}

TEST_F(DamagedCheckpoint, AChangedLossIsFound) {
  const auto path = file(30, "history.safetensors");
  flip_bit(path, std::filesystem::file_size(path) - 2);
  EXPECT_EQ(used_after_damage_to(path, "was changed or cut off"), 20);
}

TEST_F(DamagedCheckpoint, EachDamagedOneIsSkipped) {
  overwrite(file(30, "manifest.json"), "garbage");
  flip_bit(file(20, "model.safetensors"), 20);
  EXPECT_EQ(newest_step(checkpoints_), 10);
}

TEST_F(DamagedCheckpoint, WhenAllAreDamagedEachIsNamed) {
  overwrite(file(30, "manifest.json"), "garbage");
  std::filesystem::remove(file(20, "optimizer.safetensors"));
  flip_bit(file(10, "model.safetensors"), 20);
  EXPECT_TRUE(fails_with(ErrorCode::corrupt,
                         {file(30, "manifest.json"), file(20, "optimizer.safetensors"),
                          file(10, "model.safetensors")},
                         [&] { checkpoints_.newest(); }));
  EXPECT_TRUE(has_checkpoints(runs_));
}

TEST_F(DamagedCheckpoint, ANewerFormatIsRefusedAndNotSkipped) {
  std::string text = read_file(file(30, "manifest.json"));
  overwrite(file(30, "manifest.json"),
            text.replace(text.find("\"format\": 3"), 11, "\"format\": 4"));
  EXPECT_TRUE(fails_with(ErrorCode::unsupported, {file(30, "manifest.json"), "format 4"},
                         [&] { checkpoints_.newest(); }));
}

TEST_F(DamagedCheckpoint, IsReplacedWhenTheRunComesToItsStepAgain) {
  overwrite(file(30, "manifest.json"), "garbage");
  save(checkpoints_, 25);
  EXPECT_EQ(newest_step(checkpoints_), 25);
  save(checkpoints_, 30);
  EXPECT_EQ(newest_step(checkpoints_), 30);
}

TEST_F(DamagedCheckpoint, AnyMutationOfAnyFileIsSkipped) {
  std::mt19937_64 random(11);
  const char* names[] = {"model.safetensors", "optimizer.safetensors", "history.safetensors",
                         "pieces.safetensors", "manifest.json"};
  set_log_level(LogLevel::error);
  for (int round = 0; round < 150; ++round) {
    const auto path = file(30, names[random() % 5]);
    const std::string whole = read_file(path);
    if (round % 3 == 0)
      std::filesystem::resize_file(path, random() % whole.size());
    else
      flip_bit(path, random() % whole.size(), static_cast<int>(random() % 8));
    ASSERT_EQ(newest_step(checkpoints_), 20) << path << " round " << round;
    overwrite(path, whole);
  }
  set_log_level(LogLevel::info);
}

}  // namespace
}  // namespace trireme::checkpoint::damaged_checkpoint_test
