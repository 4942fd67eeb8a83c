// The settings that a launcher passes to its workers make the same configuration there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <trireme/config/print.h>
#include <trireme/config/value.h>
#include <trireme/run/config.h>
#include <algorithm>
#include <fstream>
#include <map>

#include "../base/expect_error.h"

namespace trireme::settings_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Config load(const std::string& yaml) {
  const std::filesystem::path file = std::filesystem::temp_directory_path() /
                                     ("trireme-settings-" + std::to_string(getpid()) + ".yaml");
  std::ofstream(file) << yaml;
  const Config config = load_config({file, {}, {}});
  std::filesystem::remove(file);
  return config;
}
std::string refusal(const std::string& yaml) {
  return message_of(ErrorCode::invalid_argument, [&] { load(yaml); });
}

TEST(Settings, OfTheDefaultsAreNone) { EXPECT_THAT(to_settings(Config{}), IsEmpty()); }

TEST(Settings, OfTwoIntervalsAreReadBack) {
  Config config;
  config.trainer.checkpoint.every_steps = 5;
  config.trainer.checkpoint.every_epochs = 1;
  EXPECT_THAT(to_settings(config), ElementsAre("checkpoint.every=5 steps and 1 epochs"));
  const Config again = load_config({{}, to_settings(config), {}});
  EXPECT_EQ(again.trainer.checkpoint.every_steps, 5);
  EXPECT_EQ(again.trainer.checkpoint.every_epochs, 1);
  EXPECT_EQ(load("checkpoint.every: epoch and 100\n").trainer.checkpoint.every_steps, 100);
  for (const std::string wrong : {"5 steps and", "and 5", "5 steps and 6 steps",
                                  "1 epoch and 2 "
                                  "epochs",
                                  "5 steps and never", "5 steps and 1 epoch and 2"})
    EXPECT_THAT(refusal("checkpoint.every: " + wrong + "\n"),
                AllOf(HasSubstr(wrong), HasSubstr("steps or epochs")));
}

TEST(Settings, TakeALossScaleHoweverSmall) {
  const Config config = load_config({{}, {"train.precision=fp16", "train.loss_scale=1e-310"}, {}});
  EXPECT_EQ(config.trainer.loss_scaling->initial, 1e-310);
}

}  // namespace
}  // namespace trireme::settings_test
