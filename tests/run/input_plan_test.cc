#include <gmock/gmock.h>

#include <trireme/run/input_plan.h>

namespace trireme::input_plan_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

InputPlan plan_of(std::vector<std::string> set) {
  set.emplace_back("model.name=mlp");
  return input_plan_of(load_config({{}, set}));
}

const std::vector<std::string> kImages{"data.name=image_folder", "data.path=photos"};

InputPlan images_with(const std::string& setting) {
  std::vector<std::string> set = kImages;
  set.push_back(setting);
  return plan_of(set);
}

TEST(InputPlan, HasFormatKeysStagesAndOrder) {
  const InputPlan plan = plan_of({"data.name=csv", "data.path=a.csv", "data.delimiter=;",
                                  "data.target=y", "data.shuffle=blocks", "data.window=64"});
  EXPECT_EQ(plan.order, "blocks, in windows of 64");
  EXPECT_THAT(plan.sets, ElementsAre("csv; data.target=y; data.delimiter=;"));
  const InputPlan images = images_with("data.stages=decode|flip|  normalise(0.5)");
  EXPECT_THAT(images.sets,
              ElementsAre("image_folder; stages: decode | flip | normalise(0.5); of evaluations: "
                          "decode | normalise(0.5)"));
  EXPECT_EQ(images.digest().size(), 16U);
  EXPECT_THAT(images.describe(), HasSubstr("input " + images.digest() + ": order full\n  image_"));
  EXPECT_EQ(images.to_json()["digest"], images.digest());
  EXPECT_THAT(plan_of({}).sets, ElementsAre("digits"));
}

TEST(InputPlan, DiffersWhereSamplesOrTheirOrderDo) {
  const std::string digest = images_with("data.stages=decode | flip").digest();
  for (const char* const other :
       {"data.stages=flip | decode(1)", "data.stages=decode(1) | flip", "data.stages=decode"}) {
    // Which stages fit the files is not known before they are read.
    EXPECT_NE(images_with(other).digest(), digest) << other;
  }
  EXPECT_NE(images_with("data.stages=decode_record(sound, 16)").digest(),
            images_with("data.stages=decode_record(speech, 16)").digest());
  const InputPlan plain = plan_of(kImages);
  for (const char* const key :
       {"data.test_stages=decode", "data.inputs=image", "data.on_bad_record=skip",
        "data.shuffle=none", "data.test_fraction=0.5", "data.split_seed=3"})
    EXPECT_NE(images_with(key).digest(), plain.digest()) << key;
}

TEST(InputPlan, HasWhatDecidesAboutRowsAndNotWhatEndsARun) {
  const std::vector<std::string> csv{"data.name=csv", "data.path=a.csv",
                                     "data.on_bad_record=skip"};
  const auto with = [&](const char* key) {
    std::vector<std::string> keys = csv;
    keys.emplace_back(key);
    return plan_of(keys).digest();
  };
  EXPECT_NE(with("data.comment=#"), plan_of(csv).digest());
  EXPECT_NE(with("data.skip_lines=2"), plan_of(csv).digest());
  EXPECT_EQ(with("data.bad_records=7"), plan_of(csv).digest());
}

TEST(InputPlan, IsEqualWhereverFilesAreAndHoweverFast) {
  const InputPlan plain = plan_of(kImages);
  for (const char* const key :
       {"data.path=elsewhere", "data.test_path=more", "data.threads=3", "data.prefetch=9",
        "data.memory_bytes=1GB", "data.cache_dir=/tmp/c", "data.service=host", "train.seed=4"})
    EXPECT_EQ(images_with(key).digest(), plain.digest()) << key;
  EXPECT_EQ(images_with("data.stages=decode | flip").digest(),
            images_with("data.stages=decode(3) | flip(p=0.5)").digest());
  EXPECT_EQ(images_with("data.stages=decode | flip").digest(),
            images_with("data.stages=decode | cache | flip").digest());
}

TEST(InputPlan, FindsTheStagesThatCallFunctions) {
  const auto found = [](std::vector<std::string> set) {
    set.emplace_back("model.name=mlp");
    return data::describe(stages_with_functions(load_config({{}, set})));
  };
  EXPECT_EQ(found({"data.name=digits"}), "");
  EXPECT_EQ(found({"data.name=cifar", "data.path=a", "data.test_stages=normalise | filter(b)",
                   "data.stages=normalise | map(c) | random_map(a) | map(c)"}),
            "filter(b) | map(c) | random_map(a)");
  EXPECT_EQ(found({"data.name=mixture", "data.stages=normalise | map(a)",
                   "data.sources=[{name: cifar, path: a}, {name: cifar, path: b, stages: "
                   "normalise | map(b)}]"}),
            "map(a) | map(b)");
}

TEST(InputPlan, HasTheSourcesOfAMixtureWithTheirWeights) {
  const auto mixture = [](const std::string& of_first) {
    return plan_of({"data.name=mixture", "data.stages=decode",
                    "data.sources=[{name: image_folder, path: a, as: web, weight: 0.7" + of_first +
                        "}, {name: cifar, path: b}]"});
  };
  const InputPlan plan = mixture("");
  EXPECT_THAT(plan.sets, ElementsAre(HasSubstr("mixture"),
                                     "source web of weight 0.7: image_folder; stages: decode; of "
                                     "evaluations: decode",
                                     HasSubstr("source 2 of weight 1: cifar; stages: decode")));
  EXPECT_THAT(plan.describe(), Not(HasSubstr("path")));
  EXPECT_NE(mixture(", stages: decode | flip").digest(), plan.digest());
  // A source with the same stages as an entry of its own, and a cache, is the same source.
  const auto mixed = [](const std::string& of_source) {
    return plan_of({"data.name=mixture", "data.stages=decode | normalise | mixup",
                    "data.sources=[{name: image_folder, path: a" + of_source + "}]"});
  };
  EXPECT_EQ(mixed(", stages: \"decode | cache | normalise\"").digest(), mixed("").digest());
  EXPECT_THAT(mixed("").sets, ElementsAre(HasSubstr("mixup"), Not(HasSubstr("mixup"))));
  const InputPlan zip = plan_of({"data.name=zip", "data.target=y",
                                 "data.sources=[{name: csv, path: a}, {name: npy, path: b}]"});
  EXPECT_THAT(zip.sets, ElementsAre("zip; data.target=y", "source 1: csv; data.target=y",
                                    "source 2: npy; data.target=y"));
}

}  // namespace
}  // namespace trireme::input_plan_test
