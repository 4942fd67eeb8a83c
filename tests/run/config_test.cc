#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <trireme/base/error.h>
#include <trireme/config/print.h>
#include <trireme/config/value.h>
#include <trireme/data/kinds/idx_set.h>
#include <trireme/plan/collective_plan.h>
#include <trireme/run/config.h>
#include <trireme/run/dataset.h>
#include <fstream>

#include "../base/expect_error.h"

namespace trireme::config_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// A folder for the running test. It is removed at the end.
class ConfigTest : public testing::Test {
 protected:
  ConfigTest()
      : folder_(std::filesystem::temp_directory_path() /
                ("trireme-config-" + std::to_string(getpid()))) {
    std::filesystem::create_directories(folder_);
  }
  ~ConfigTest() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path file(const std::string& content,
                             const std::string& name = "run.yaml") const {
    std::ofstream(folder_ / name) << content;
    return folder_ / name;
  }
  Config load(const std::string& yaml, const std::vector<std::string>& set = {}) const {
    return load_config({file(yaml), set});
  }

  std::string message(const std::string& yaml, const std::vector<std::string>& set = {}) const {
    try {
      load(yaml, set);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      return error.what();
    }
    return "no error";
  }

  std::filesystem::path folder_;
};

class ConfigReading : public ConfigTest {};
class ConfigErrors : public ConfigTest {};
class ConfigLayers : public ConfigTest {};
class ConfigRules : public ConfigTest {};
class ConfigIdxFiles : public ConfigTest {};
class ConfigData : public ConfigTest {};

TEST_F(ConfigReading, TakesDefaultsWhereNothingIsGiven) {
  for (const std::string yaml : {"", "# nothing\n", "model:\n"}) {
    const Config config = load(yaml);
    EXPECT_EQ(config.model.name, "cnn");
    EXPECT_EQ(config.trainer.batch, 64);
    EXPECT_EQ(config.trainer.epochs, 10);
    EXPECT_EQ(config.trainer.steps, -1);
  }
  EXPECT_EQ(load_config({}).data.split_seed, 20260101);
}

TEST_F(ConfigReading, LeavesNoWayThroughOtherFoldersInPaths) {
  const Config config = load("run.dir: made/later/../../run\ncheckpoint.dir: later/../ckpt\n");
  EXPECT_EQ(config.record.dir, "run");
  EXPECT_EQ(config.trainer.checkpoint.dir, "ckpt");
  EXPECT_EQ(load("").trainer.checkpoint.dir, "");
}

TEST_F(ConfigReading, TakesNestedAndDottedKeysAlike) {
  const Config nested = load("model:\n  name: cnn\n  channels: [16, 32]\n  batch_norm: false\n");
  const Config dotted = load("model.name: cnn\nmodel.channels: [16, 32]\nmodel.batch_norm: no\n");
  EXPECT_EQ(nested.model.channels, (std::vector<int64_t>{16, 32}));
  EXPECT_EQ(flatten(nested), flatten(dotted));
}

TEST_F(ConfigReading, TakesListsFromSetWithAndWithoutBrackets) {
  EXPECT_EQ(load("", {"model.channels=[16, 32]"}).model.channels, (std::vector<int64_t>{16, 32}));
  EXPECT_EQ(load("", {"model.channels=16,32"}).model.channels, (std::vector<int64_t>{16, 32}));
  EXPECT_EQ(load("model.channels: 16\n").model.channels, (std::vector<int64_t>{16}));
}

TEST_F(ConfigReading, TakesValuesWithUnits) {
  const Config config =
      load("comm: {timeout: 5s, heartbeat_interval: 50ms}\nstrategy: {bucket_bytes: 2MiB}\n");
  EXPECT_EQ(config.world.timeout, Milliseconds(5000));
  EXPECT_EQ(config.world.heartbeat_interval, Milliseconds(50));
  EXPECT_EQ(config.trainer.buckets.capacity_bytes, 2 << 20);
}

// data.shuffle was a flag before there were more orders than two.
TEST_F(ConfigReading, TakesTheOrderByNameOrAsAFlag) {
  using plan::OrderKind;
  const std::vector<std::pair<const char*, OrderKind>> orders{
      {"full", OrderKind::full},     {"true", OrderKind::full},  {"yes", OrderKind::full},
      {"none", OrderKind::none},     {"false", OrderKind::none}, {"off", OrderKind::none},
      {"blocks", OrderKind::blocks}, {"index", OrderKind::index}};
  for (const auto& [text, kind] : orders) {
    EXPECT_EQ(load(fmt::format("data.shuffle: {}\n", text)).trainer.shuffle.kind, kind) << text;
    EXPECT_EQ(load("", {fmt::format("data.shuffle={}", text)}).trainer.shuffle.kind, kind) << text;
  }
  EXPECT_EQ(load("data: {shuffle: blocks, window: 7}\n").trainer.shuffle.window, 7);
  EXPECT_EQ(load("").trainer.shuffle.kind, OrderKind::full);
}

TEST_F(ConfigReading, TakesAutoForKeysThatTheProgramCanChoose) {
  const Config config = load(
      "strategy.replicas: auto\nmodel.batch_norm: auto\nmodel.channels: auto\ntrain.steps: "
      "auto\n");
  EXPECT_EQ(config.trainer.replicas, -1);
  EXPECT_EQ(config.model.batch_norm, -1);
  EXPECT_TRUE(config.model.channels.empty());
  EXPECT_EQ(config.trainer.epochs, 10);
}

TEST_F(ConfigReading, TakesZeroStepsToSaveTheInitialWeights) {
  const Config config = load("train.steps: 0\n");
  EXPECT_EQ(config.trainer.steps, 0);
  EXPECT_EQ(config.trainer.epochs, -1);
}

TEST_F(ConfigReading, TakesAnEmptyTextOnlyInQuotes) {
  EXPECT_EQ(load("data.path: \"\"\n").data.path, "");
  EXPECT_THAT(message("data.path:\n"), HasSubstr("data.path has no value"));
}

// Every key accepts its own default in the form in which it is printed.
TEST_F(ConfigReading, ReadsWhatFlattenPrints) {
  Config config;
  const config::Table& table = table_of_config();
  for (const config::Row& row : table.rows()) {
    if (!row.in_file) continue;
    const std::string text = value_as_text(table.defaults(), row);
    set_value(table, &config, row,
              {std::string(row.name), text, "test", false, /*is_quoted=*/true});
  }
  EXPECT_EQ(flatten(config), flatten(Config{}));
}

TEST_F(ConfigReading, PrintsGivenValues) {
  const Json json = to_json(load(
      "model.channels: [8]\noptimizer.lr: 0.25\ncomm.timeout: 1min\nmodel.batch_norm: false\n"));
  EXPECT_EQ(json["model"]["channels"], Json({8}));
  EXPECT_EQ(json["model"]["strides"], "auto");
  EXPECT_EQ(json["model"]["batch_norm"], false);
  EXPECT_EQ(json["optimizer"]["lr"], 0.25);
  EXPECT_EQ(json["comm"]["timeout"], "60s");
  EXPECT_EQ(json["data"]["batch"], 64);
}

TEST_F(ConfigErrors, NameFileLineAndNearestKey) {
  EXPECT_THAT(message("model:\n  nmae: cnn\n"),
              AllOf(HasSubstr("run.yaml:2: there is no key \"model.nmae\""),
                    HasSubstr("try: model.name")));
  EXPECT_THAT(message("modle:\n  name: cnn\n"),
              AllOf(HasSubstr("run.yaml:1:"), HasSubstr("try: model")));
  EXPECT_THAT(message("lr: 0.1\n"), HasSubstr("try: optimizer.lr"));
  EXPECT_THAT(
      message("", {"data.bach=3"}),
      AllOf(HasSubstr("--set: there is no key \"data.bach\""), HasSubstr("try: data.batch")));
  EXPECT_THAT(message("", {"train.lr=3"}), HasSubstr("try: optimizer.lr"));
  EXPECT_THAT(message("zzzzzzzz: 1\n"), HasSubstr("--keys"));
  EXPECT_THAT(message("", {std::string(100000, 'k') + "=1"}), HasSubstr("there is no key"));
}

TEST_F(ConfigErrors, NameTheExpectedType) {
  EXPECT_THAT(message("data.batch: many\n"),
              HasSubstr("run.yaml:1: data.batch is \"many\"; expected: whole number, at least 1"));
  EXPECT_THAT(message("data.batch: 1.5\n"), HasSubstr("whole number"));
  EXPECT_THAT(message("data.batch: [1, 2]\n"), HasSubstr("data.batch is \"[1, 2]\""));
  EXPECT_THAT(message("data.batch: {a: 1}\n"), HasSubstr("has keys below it"));
  EXPECT_THAT(message("data.shuffle: 3\n"), HasSubstr("one of full, index, blocks, none"));
  EXPECT_THAT(message("data.drop_last: 3\n"), HasSubstr("true or false"));
  EXPECT_THAT(message("data: {shuffle: blocks, window: 0}\n"),
              HasSubstr("whole number, at least 1"));
  EXPECT_THAT(message("data: {shuffle: index, window: 9}\n"), HasSubstr("data.window"));
  EXPECT_THAT(message("optimizer.lr: fast\n"), HasSubstr("number, at least 0"));
  EXPECT_THAT(message("optimizer.lr: nan\n"), HasSubstr("optimizer.lr is \"nan\""));
  EXPECT_THAT(message("model.channels: [8, x]\n"), HasSubstr("list of whole numbers"));
  EXPECT_THAT(message("model.channels: [[8]]\n"), HasSubstr("has an entry that is not one value"));
  EXPECT_THAT(message("model.channels: []\n"), HasSubstr("list of whole numbers"));
  EXPECT_THAT(message("data.path: [a, b]\n"), HasSubstr("expected: text"));
  EXPECT_THAT(message("comm.timeout: 5 parsecs\n"), HasSubstr("duration, such as"));
  EXPECT_THAT(message("strategy.bucket_bytes: large\n"), HasSubstr("bytes, such as"));
  EXPECT_THAT(message("model: cnn\n"), HasSubstr("model is a section of keys"));
  EXPECT_THAT(message("", {"model=cnn"}), HasSubstr("try: --set model.name=cnn"));
}

TEST_F(ConfigErrors, NameTheFaultAndTheExpectation) {
  EXPECT_THAT(message("", {"inject.faults=kill:rank=1@step=4; stp:rank=0@step=5"}),
              AllOf(HasSubstr("--set: inject.faults: "), HasSubstr("fault 2, 'stp:rank=0@step=5'"),
                    HasSubstr("try: stop")));
  EXPECT_THAT(message("", {"inject.faults=drop:link=0-1@step=4"}),
              AllOf(HasSubstr("comm.backend is auto"), HasSubstr("comm.backend=tcp")));
  EXPECT_EQ(
      load("comm.backend: tcp\n", {"inject.faults=random:seed=1,faults=2,steps=9,kinds=drop"})
          .world.backend,
      "tcp");
  EXPECT_THAT(message("inject.expect: same\n"),
              AllOf(HasSubstr("run.yaml:1: inject.expect"), HasSubstr("'same'")));
  const auto faults =
      load("inject: {faults: \"kill:rank=1@step=4\", expect: none}\n").trainer.inject.faults;
  EXPECT_EQ(to_text(faults), "kill:rank=1@step=4,phase=backward");
}

TEST_F(ConfigRules, GuardsFitTogether) {
  EXPECT_THAT(message("guard.policy: hope\n"), HasSubstr("one of stop, skip, rollback"));
  EXPECT_THAT(message("guard.spike: 0.5\n"),
              HasSubstr("guard.spike is 0.5, but a spike is above the median"));
  EXPECT_THAT(message("guard.window: 1\n"), HasSubstr("2 to 1000000"));
  EXPECT_THAT(message("guard.check_replicas_every: 5\nstrategy.local_steps: 4\n"),
              HasSubstr("guard.check_replicas_every is given, but strategy.local_steps is 4"));
  EXPECT_EQ(load("guard: {policy: rollback, spike: 10, window: 100}\n").trainer.guard.spike, 10);
}

TEST_F(ConfigErrors, NameTheAllowedRange) {
  EXPECT_THAT(message("data.batch: 0\n"),
              AllOf(HasSubstr("at least 1"), HasSubstr("try: data.batch=64 (the default)")));
  EXPECT_THAT(message("", {"optimizer.lr=-0.1"}),
              HasSubstr("--set: optimizer.lr is \"-0.1\"; expected: number, at least 0"));
  EXPECT_THAT(message("optimizer.momentum: 1\n"), HasSubstr("at least 0 and below 1"));
  EXPECT_THAT(message("strategy.replicas: -1\n"), HasSubstr("1 to 1024, or auto"));
  EXPECT_THAT(message("checkpoint.keep: 99999999999\n"),
              HasSubstr("checkpoint.keep is \"99999999999\""));
  EXPECT_THAT(message("data.batch: 99999999999999999999\n"), HasSubstr("data.batch is"));
  EXPECT_THAT(message("model.channels: [8, 0]\n"), HasSubstr("at least 1"));
  EXPECT_THAT(message("comm.timeout: 0s\n"), HasSubstr("comm.timeout is \"0s\""));
}

TEST_F(ConfigErrors, NameTheNearestChoice) {
  EXPECT_THAT(message("optimizer.name: adm\n"),
              AllOf(HasSubstr("one of sgd, adam"), HasSubstr("try: optimizer.name=adam")));
  EXPECT_THAT(message("strategy.name: mirorred\n"), HasSubstr("try: strategy.name=mirrored"));
  EXPECT_THAT(message("device.name: gpu\n"), HasSubstr("try: cpu, cuda"));
}

TEST_F(ConfigErrors, RefuseAKeyGivenTwiceInAFile) {
  EXPECT_THAT(
      message("data:\n  batch: 1\n  batch: 2\n"),
      AllOf(HasSubstr("run.yaml:3: data.batch was given before"), HasSubstr("run.yaml:2")));
  EXPECT_THAT(message("data:\n  batch: 1\ndata.batch: 2\n"),
              HasSubstr("data.batch was given before"));
  EXPECT_THAT(message("data:\n  batch: 1\ndata:\n  seed: 2\n"),
              HasSubstr("data was given before"));
}

TEST_F(ConfigErrors, NameTheLineOfBadYaml) {
  EXPECT_THAT(message("data:\n  batch: [1\nmodel: 2\n"),
              AllOf(HasSubstr("run.yaml:3: not valid YAML")));
  EXPECT_THAT(message("just words\n"), HasSubstr("run.yaml:1: this is not a list of keys"));
  EXPECT_THAT(message("- a\n- b\n"), HasSubstr("not a list of keys"));
  EXPECT_THAT(message("data.batch: 1\n---\ndata.batch: 2\n"), HasSubstr("a second YAML document"));
  EXPECT_THAT(message("[a, b]: 1\n"), HasSubstr("a key must be a word"));
  EXPECT_THAT(message("data: &loop\n  batch: *loop\n"), HasSubstr("run.yaml"));
  EXPECT_THAT(message(std::string("\x00\x01\xff\xfe{", 5)), HasSubstr("run.yaml"));
}

TEST_F(ConfigErrors, NameAMissingFileOrValue) {
  try {
    load_config({folder_ / "absent.yaml", {}});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::not_found);
    EXPECT_THAT(error.what(), HasSubstr("absent.yaml"));
  }
  EXPECT_THROW(load_config({folder_, {}}), Error);
  EXPECT_THAT(message("", {"data.batch="}), HasSubstr("--set: data.batch has no value"));
  EXPECT_THAT(message("", {"data.batch"}), HasSubstr("not of the form key=value"));
  EXPECT_THAT(message("", {"=5"}), HasSubstr("not of the form key=value"));
}

TEST_F(ConfigLayers, LetSetOverrideTheFileAndTheLastSetWin) {
  EXPECT_EQ(load("data.batch: 8\n", {"data.batch=16"}).trainer.batch, 16);
  EXPECT_EQ(load("", {"data.batch=16", "data.batch=32"}).trainer.batch, 32);
}

TEST_F(ConfigLayers, LetStepsOfTheCommandLineReplaceEpochsOfTheFile) {
  const Config config = load("train.epochs: 20\n", {"train.steps=50"});
  EXPECT_EQ(config.trainer.steps, 50);
  EXPECT_EQ(config.trainer.epochs, -1);
  EXPECT_EQ(load("train.steps: 20\n", {"train.epochs=3"}).trainer.steps, -1);
}

TEST_F(ConfigLayers, DropTheOptionsOfAModelThatSetReplaces) {
  const Config config =
      load("model: {name: cnn, channels: [8], batch_norm: false, dropout: 0.1}\n",
           {"model.name=mlp", "model.hidden=32"});
  EXPECT_TRUE(config.model.channels.empty());
  EXPECT_EQ(config.model.batch_norm, -1);
  EXPECT_EQ(config.model.hidden, (std::vector<int64_t>{32}));
  EXPECT_EQ(config.model.dropout, 0.1);
  EXPECT_EQ(
      load("optimizer: {name: sgd, momentum: 0.9}\n", {"optimizer.name=adam"}).optimizer.momentum,
      0);
}

TEST_F(ConfigRules, RefuseEpochsAndStepsTogether) {
  EXPECT_THAT(message("train: {epochs: 2, steps: 5}\n"),
              HasSubstr("train.epochs is 2 and train.steps is 5"));
  EXPECT_THAT(message("", {"train.epochs=2", "train.steps=5"}), HasSubstr("only one of them"));
}

TEST_F(ConfigRules, RefuseOptionsOfAnotherChoice) {
  EXPECT_THAT(
      message("model:\n  name: mlp\n  channels: [8]\n"),
      AllOf(HasSubstr("run.yaml:3: model.channels is for model.name cnn, but model.name is mlp")));
  EXPECT_THAT(message("model.name: mlp\n", {"model.channels=8"}),
              HasSubstr("--set: model.channels is for"));
  EXPECT_THAT(message("data.images: a\n"),
              HasSubstr("data.images is for data.name idx, but data.name is digits"));
  EXPECT_THAT(message("schedule.every: 3\n"),
              HasSubstr("schedule.every is for schedule.name step"));
  EXPECT_THAT(message("optimizer: {name: adam, momentum: 0.9}\n"),
              HasSubstr("optimizer.momentum is for optimizer.name sgd, rmsprop"));
}

TEST_F(ConfigRules, NameTheKeysThatAreStillNeeded) {
  EXPECT_THAT(message("schedule.name: step\n"),
              AllOf(HasSubstr("run.yaml:1:"), HasSubstr("try: schedule.every=10")));
  EXPECT_THAT(message("optimizer.nesterov: true\n"), HasSubstr("try: optimizer.momentum=0.9"));
  EXPECT_THAT(message("data.name: idx\n"), HasSubstr("data.images=FILE"));
  EXPECT_THAT(message("data: {name: idx, images: a, labels: b, test_images: c}\n"),
              HasSubstr("without the other"));
}

TEST_F(ConfigRules, RefuseReplicasOnOneDevice) {
  EXPECT_THAT(message("strategy: {name: one_device, replicas: 2}\n"),
              HasSubstr("try: strategy.name=mirrored"));
  EXPECT_EQ(load("strategy: {name: one_device, replicas: 1}\n").trainer.replicas, 1);
}

TEST_F(ConfigRules, CheckModelHeartbeatAndCheckpoint) {
  EXPECT_THAT(message("model: {channels: [8, 8], strides: [1]}\n"),
              HasSubstr("model.strides has 1 entries"));
  EXPECT_THAT(message("comm: {heartbeat_interval: 5s, heartbeat_timeout: 5s}\n"),
              HasSubstr("the timeout must be longer"));
  EXPECT_THAT(message("checkpoint.every: sometimes\n"),
              HasSubstr("run.yaml:1: checkpoint.every is \"sometimes\""));
}

TEST_F(ConfigRules, CheckTheTableOfCollectivesBeforeAnythingStarts) {
  EXPECT_THAT(
      message("comm.table: /no/such/table.json\n"),
      AllOf(HasSubstr("comm.table is /no/such/table.json"), HasSubstr("there is no file")));
  const auto table = [this](const std::string& rows) {
    return "comm.table: " + file("{\"rows\": [" + rows + "]}", "table.json").string() + "\n";
  };
  EXPECT_THAT(message(table(
                  R"({"path":"udp","collective":"all_reduce","ranks":2,"hosts":1,"choices":[]})")),
              AllOf(HasSubstr("row 0: path is 'udp'"), HasSubstr("threads, shm, tcp"),
                    HasSubstr("--tune")));
  EXPECT_EQ(load(table("")).world.table, (folder_ / "table.json").string());
}

TEST_F(ConfigRules, OfferTheAlgorithmsOfAnAllReduce) {
  EXPECT_THAT(
      message("strategy.all_reduce: rign\n"),
      HasSubstr(
          "auto, naive, direct, ring, recursive_doubling, halving_doubling, tree, hierarchical"));
  for (const plan::Algorithm algorithm : plan::algorithms_of(plan::Collective::all_reduce)) {
    const std::string name(plan::to_string(algorithm));
    EXPECT_EQ(load("strategy.all_reduce: " + name + "\n").world.all_reduce, name);
  }
}

TEST(ConfigCheckpointEvery, ReadsStepsAndEpochs) {
  const auto read = [](const std::string& text) {
    return load_config({{}, {"checkpoint.every=" + text}}).trainer.checkpoint;
  };
  EXPECT_EQ(read("100").every_steps, 100);
  EXPECT_EQ(read("100 steps").every_steps, 100);
  EXPECT_EQ(read("1 step").every_steps, 1);
  EXPECT_EQ(read("2 epochs").every_epochs, 2);
  EXPECT_EQ(read("2 epochs").every_steps, 0);
  EXPECT_EQ(read("epoch").every_epochs, 1);
  EXPECT_EQ(read("never").every_steps, 0);
  EXPECT_EQ(read("never").every_epochs, 0);
}

TEST(ConfigCheckpointEvery, RefusesAnythingElse) {
  for (const std::string text :
       {"0", "-5", "0 epochs", "1.5", "5 hours", "steps 5", " ", "99999999999999999999"})
    EXPECT_THROW(load_config({{}, {"checkpoint.every=" + text}}), Error) << text;
}

Config with_strategy(const std::string& name, int replicas, int64_t batch = 64) {
  Config config;
  config.trainer.strategy = name;
  config.trainer.replicas = replicas;
  config.trainer.batch = batch;
  return config;
}

std::string refusal(const Config& config, int workers) {
  try {
    check_with_workers(config, workers);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "no error";
}

TEST(ConfigStrategy, AutoFollowsWorkersAndReplicas) {
  EXPECT_EQ(check_with_workers(with_strategy("auto", -1), 1).name, "one_device");
  EXPECT_EQ(check_with_workers(with_strategy("auto", 2), 1).name, "mirrored");
  const ResolvedStrategy many = check_with_workers(with_strategy("auto", 2), 3);
  EXPECT_EQ(many.name, "multi_worker");
  EXPECT_EQ(many.replicas_per_worker, 2);
  EXPECT_EQ(many.world_size, 6);
}

TEST(ConfigStrategy, MirroredFillsTheCoresUpToEight) {
  EXPECT_EQ(check_with_workers(with_strategy("mirrored", -1), 1, /*cores=*/3).world_size, 3);
  EXPECT_EQ(check_with_workers(with_strategy("mirrored", -1), 1, /*cores=*/64).world_size, 8);
  EXPECT_EQ(check_with_workers(with_strategy("mirrored", 5), 1, /*cores=*/2).world_size, 5);
  EXPECT_GE(check_with_workers(with_strategy("mirrored", -1), 1).world_size, 1);
}

TEST(ConfigStrategy, RefusesWorkersThatItCannotUse) {
  for (const std::string name : {"one_device", "mirrored"}) {
    EXPECT_THAT(refusal(with_strategy(name, -1), 3),
                AllOf(HasSubstr(name), HasSubstr("3 workers"),
                      HasSubstr("try: strategy.name=multi_worker")));
  }
  EXPECT_THAT(refusal(Config{}, 0), HasSubstr("--workers 0 is below 1"));
  EXPECT_EQ(check_with_workers(with_strategy("multi_worker", -1), 1).world_size, 1);
}

TEST(ConfigStrategy, RefusesAGlobalBatchSmallerThanTheReplicas) {
  EXPECT_THAT(refusal(with_strategy("auto", 2, /*batch=*/5), 3),
              AllOf(HasSubstr("data.batch is 5"), HasSubstr("6 replicas")));
  EXPECT_EQ(check_with_workers(with_strategy("auto", 2, /*batch=*/6), 3).world_size, 6);
}

TEST(ConfigStrategy, RefusesABackendThatCannotConnect) {
  Config config;
  config.world.backend = "threads";
  EXPECT_THAT(refusal(config, 2), HasSubstr("comm.backend is threads"));
  EXPECT_EQ(check_with_workers(config, 1).world_size, 1);
  config.world.backend = "gloo";
  EXPECT_EQ(check_with_workers(config, 2).world_size, 2);
  config.trainer.replicas = 2;
  EXPECT_THAT(refusal(config, 1), HasSubstr("comm.backend is gloo"));
}

TEST_F(ConfigRules, TextNeedsAFileAndAModelOfTokens) {
  EXPECT_THAT(message("data: {name: text}\nmodel: {name: gpt}"),
              HasSubstr("data.path does not name its file"));
  EXPECT_THAT(message("data: {name: text, path: a}\nmodel: {name: cnn}"),
              AllOf(HasSubstr("model.name is cnn"), HasSubstr("model.name=gpt")));
  EXPECT_THAT(message("data: {name: text, path: a, block: 9}\nmodel: {name: gpt, context: 8}"),
              HasSubstr("data.block=8"));
  EXPECT_THAT(message("data: {name: digits, block: 9}"),
              HasSubstr("data.block is for data.name text"));
  EXPECT_THAT(message("data: {name: text, path: a, split_seed: 3}\nmodel: {name: gpt}"),
              HasSubstr("data.split_seed is for data.name digits, idx, criteo"));
}

TEST_F(ConfigData, LeavesVocabularyAndContextToTheTextAndHoldsOutItsEnd) {
  const Config config = load("data: {name: text, block: 4, test_fraction: 0.25, path: " +
                             file("abcabcabcabcabcab", "text").string() + "}\nmodel: {name: gpt}");
  const Dataset data = read_data(config);
  EXPECT_EQ(data.train_samples, 3);
  EXPECT_EQ(data.split.test, (std::vector<int64_t>{3}));
  const models::ModelOptions model = model_for(config, data);
  EXPECT_EQ(model.vocabulary, 3);
  EXPECT_EQ(model.context, 4);
  Config preset = config;
  preset.model.name = "gpt2";  // Its sizes are fixed.
  EXPECT_EQ(models::resolve(model_for(preset, data)).vocabulary, 50257);
}

// Without a target a sample is its own, which no loss for classes takes.
TEST_F(ConfigData, SaysWhetherTargetsAreMissingOrValues) {
  const auto refusal_of = [&](const std::string& name, const std::string& rows) {
    const Config config =
        load("data: {name: csv, test_fraction: 0, path: " + file(rows, name).string() +
             "}\nmodel: {name: mlp}");
    return message_of(ErrorCode::invalid_argument, [&] { read_data(config); });
  };
  EXPECT_THAT(refusal_of("one.csv", "x\n1\n2\n"),
              AllOf(HasSubstr("no field for a target"), HasSubstr("try: data.target")));
  EXPECT_THAT(refusal_of("two.csv", "x,y\n1,0.5\n2,1.5\n"),
              AllOf(HasSubstr("targets of this data set are values"), HasSubstr("loss.name=mse")));
}

TEST_F(ConfigIdxFiles, FindTheUsualNamesPlainOrGzip) {
  Config config;
  config.data.name = "idx";
  config.data.path = folder_.string();
  EXPECT_THROW(find_idx_files(config.data), Error);
  file("", "train-images-idx3-ubyte.gz");
  file("", "train-labels-idx1-ubyte");
  EXPECT_EQ(find_idx_files(config.data).images, folder_ / "train-images-idx3-ubyte.gz");
  EXPECT_TRUE(find_idx_files(config.data).test_images.empty());
  file("", "t10k-images-idx3-ubyte");
  EXPECT_THROW(find_idx_files(config.data), Error);  // Its labels are missing.
  file("", "t10k-labels-idx1-ubyte.gz");
  EXPECT_EQ(find_idx_files(config.data).test_labels, folder_ / "t10k-labels-idx1-ubyte.gz");
}

TEST_F(ConfigIdxFiles, TakeNamedFilesBeforeTheFolder) {
  Config config;
  config.data.name = "idx";
  config.data.path = folder_.string();
  config.data.images = file("", "a").string();
  config.data.labels = file("", "b").string();
  EXPECT_EQ(find_idx_files(config.data).labels, folder_ / "b");
  config.data.labels = (folder_ / "absent").string();
  try {
    find_idx_files(config.data);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::not_found);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("data.labels"), HasSubstr("absent")));
  }
}

std::string source_file(const std::string& path) {
  std::ifstream stream(std::filesystem::path(TRIREME_SOURCE_DIR) / path);
  return {std::istreambuf_iterator<char>(stream), {}};
}

TEST(ConfigDocument, HasExactlyTheTableOfTheProgram) {
  EXPECT_THAT(source_file("docs/configuration.md"),
              HasSubstr("\n\n" + config::describe(table_of_config()) + "\n"));
}

TEST(ConfigDocument, NamesEveryKeyOnce) {
  std::vector<std::string_view> names;
  for (const config::Row& key : table_of_config().rows()) {
    if (!key.in_file) continue;
    names.push_back(key.name);
    EXPECT_EQ(std::count(key.name.begin(), key.name.end(), '.'), 1) << key.name;
    EXPECT_EQ(key.kind == config::Kind::choice, bool{key.choices}) << key.name;
    EXPECT_TRUE(key.only_for.selector.empty() || table_of_config().find(key.only_for.selector))
        << key.name;
  }
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
}

// The settings that a launcher passes to its workers.
TEST_F(ConfigReading, SettingsAloneMakeTheSameConfiguration) {
  const std::filesystem::path examples = std::filesystem::path(TRIREME_SOURCE_DIR) / "examples";
  const Config text = load_config({examples / "text.yaml", {}});
  const Config mixed = load(
      "model: {name: mlp, hidden: [7, 9]}\ntrain: {steps: 12, dtype: float64}\n"
      "inject.faults: \"\"\ncheckpoint: {every: 5 steps, dir: \"a b=c\"}\n",
      {"optimizer.lr=0.1234567890123", "strategy.bucket_bytes=3MiB", "launch.stop_grace=1500ms",
       "model.hidden=[5]", "strategy.replicas=auto"});
  for (const Config& config : {Config{}, load_config({}), text, mixed}) {
    Config again = load_config({{}, to_settings(config)});
    if (config.trainer.epochs < 0 && config.trainer.steps < 0) again.trainer.epochs = -1;
    EXPECT_EQ(flatten(again), flatten(config));
  }
}

TEST(ConfigExamples, Load) {
  const std::filesystem::path examples = std::filesystem::path(TRIREME_SOURCE_DIR) / "examples";
  const Config digits = load_config({examples / "digits.yaml", {}});
  EXPECT_EQ(digits.model.batch_norm, 0);  // With batch norm and dropout, strategies would differ.
  EXPECT_EQ(digits.model.dropout, 0);
  EXPECT_EQ(digits.trainer.batch, 64);
  EXPECT_EQ(digits.trainer.strategy, "auto");
  EXPECT_EQ(digits.trainer.checkpoint.dir, "");
  EXPECT_EQ(load_config({examples / "mnist.yaml", {}}).data.name, "idx");
  EXPECT_EQ(load_config({examples / "text.yaml", {}}).data.name, "text");
}

}  // namespace
}  // namespace trireme::config_test
