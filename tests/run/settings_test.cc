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

Config read(const std::vector<std::string>& settings) {
  Config config;
  config::read({{}, settings, {}}, table_of_config(), &config);
  return config;
}

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

// Values that the key allows and that differ from its default.
std::vector<std::string> other_values(const config::Row& row) {
  static const std::map<std::string_view, std::vector<std::string>> kOfTexts{
      {"checkpoint.every", {"5 steps", "1 epochs", "5 steps and 1 epochs"}},
      {"data.sources", {R"([{"name":"csv","path":"a b.csv"}])"}},
      {"data.weights_at", {R"([{"epoch":"1","weights":["1","2"]}])"}},
      {"inject.faults", {"kill:rank=1@step=40,phase=backward"}},
      {"train.loss_scale", {"8", "1e-310"}}};
  if (const auto found = kOfTexts.find(row.name); found != kOfTexts.end()) return found->second;
  if (row.kind == config::Kind::text) return {"a b=c", " leading", "none"};
  if (row.kind == config::Kind::choice) return row.choices();
  if (row.kind == config::Kind::flag) return {"true", "false"};
  if (row.kind == config::Kind::list) return {"[3]", "[1, 2]"};
  if (row.kind == config::Kind::duration) return {"7s", "1234ms"};
  if (row.kind == config::Kind::bytes) return {"3MiB", "1000"};
  if (row.kind == config::Kind::whole) return {"3", row.range.holds(17) ? "17" : "2"};
  return {"0.123456789012345", row.range.holds(1e300) ? "1e+300" : "0.5"};
}

// The settings without which the key has no meaning; they may need others themselves.
std::vector<std::string> selectors_of(const config::Row& row) {
  if (row.only_for.selector.empty()) return {};
  std::vector<std::string> settings;
  for (const config::Row& other : table_of_config().rows())
    if (other.name == row.only_for.selector) settings = selectors_of(other);
  settings.push_back(std::string(row.only_for.selector) + "=" +
                     std::string(row.only_for.values.front()));
  return settings;
}

TEST(Settings, OfTheDefaultsAreNone) { EXPECT_THAT(to_settings(Config{}), IsEmpty()); }

TEST(Settings, OfEveryKeyMakeTheSameValue) {
  for (const config::Row& row : table_of_config().rows()) {
    if (!row.in_file) continue;
    for (const std::string& value : other_values(row)) {
      std::vector<std::string> given = selectors_of(row);
      given.push_back(std::string(row.name) + "=" + value);
      const Config config = read(given);
      EXPECT_EQ(value_as_text(&config, row), value) << row.name;
      EXPECT_EQ(flatten(read(to_settings(config))), flatten(config)) << given.back();
    }
  }
}

TEST(Settings, OfAnEmptyExpectationAreThoseOfNone) {
  const Config config = load("inject.expect: \"\"\n");
  EXPECT_EQ(config.expect, "none");
  EXPECT_EQ(flatten(load_config({{}, to_settings(config), {}})), flatten(config));
}

TEST(Settings, HaveNoTextOfSpacesOnly) {
  EXPECT_THAT(refusal("data.name: digits\ndata.path: \"   \"\n"),
              AllOf(HasSubstr(".yaml:2: data.path"), HasSubstr("only spaces")));
  EXPECT_EQ(load("data.path: \" a\"\n").data.path, " a");
}

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
