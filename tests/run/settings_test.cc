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

TEST(Settings, TakeALossScaleHoweverSmall) {
  const Config config = load_config({{}, {"train.precision=fp16", "train.loss_scale=1e-310"}, {}});
  EXPECT_EQ(config.trainer.loss_scaling->initial, 1e-310);
}

}  // namespace
}  // namespace trireme::settings_test
