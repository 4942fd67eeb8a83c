// data.cache: auto, for a data set and for the sources of a mixture.
#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <trireme/data/kinds/mixture_options.h>
#include <trireme/data/kinds/mixture_set.h>
#include <trireme/data/pipeline/functions.h>
#include <trireme/run/input_plan.h>
#include <trireme/run/place_cache.h>
#include <trireme/run/training.h>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "../base/expect_error.h"

namespace trireme::place_cache_test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// Functions that take longer than all else, so that the measure cannot miss them.
void take_time() {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(2);
  while (std::chrono::steady_clock::now() < end) continue;
}

class PlacesOfCaches : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    static const bool done = [] {
      register_filter("slow", [](const Example&) {
        take_time();
        return true;
      });
      register_map("slowly", [](Example one, const Draw&) {
        take_time();
        return one;
      });
      return true;
    }();
    ASSERT_TRUE(done);
  }
  void SetUp() override {
    fs::create_directories(folder_);
    std::ofstream rows(folder_ / "rows.csv"), more(folder_ / "more.csv"),
        documents(folder_ / "documents.jsonl");
    rows << "x,z,label\n";
    more << "w\n";
    for (int i = 0; i < 30; ++i) {
      rows << i << "," << 100 + i << "," << i % 3 << "\n";
      more << i << "\n";
      documents << "{\"tokens\": [1, 2, 3" << (i % 2 == 0 ? ", 4, 5" : "") << "]}\n";
    }
  }
  void TearDown() override { fs::remove_all(folder_); }

  static Config load(std::vector<std::string> settings, const char* model = "mlp") {
    settings.insert(settings.end(), {fmt::format("model.name={}", model), "data.batch=6",
                                     "data.test_fraction=0.2"});
    return load_config({{}, settings});
  }
  // `more` are further keys of an entry.
  std::string entry(const std::string& name, const std::string& more = "") const {
    return fmt::format("{{name: csv, path: {}, as: {}{}}}", (folder_ / "rows.csv").string(), name,
                       more);
  }
  Config mixture(const std::string& entries, std::vector<std::string> settings) const {
    settings.insert(settings.end(),
                    {"data.name=mixture", fmt::format("data.sources=[{}]", entries)});
    return load(std::move(settings));
  }

  const fs::path folder_ =
      fs::temp_directory_path() / ("trireme-places-" + std::to_string(getpid()));
};

std::vector<std::string> stages_of_sources(const Config& config) {
  std::vector<std::string> stages;
  for (const data::SourceOptions& source : data::sources_of(config.data))
    stages.push_back(source.options.stages);
  return stages;
}

TEST_F(PlacesOfCaches, TheLineOfOneDataSetHasTheSettingsThatKeepIt) {
  Config config = load({"data.name=csv", fmt::format("data.path={}/rows.csv", folder_.string()),
                        "data.stages=filter(slow)", "data.cache=auto"});
  EXPECT_TRUE(wants_cache_choice(config));
  EXPECT_THAT(place_cache(config),
              AllOf(HasSubstr("input: a cache behind filter saves"),
                    HasSubstr("; to keep it: data.cache=stages data.stages=\"filter(slow) | "
                              "cache\"")));
  EXPECT_EQ(config.data.stages, "filter(slow) | cache");
  EXPECT_FALSE(wants_cache_choice(config));
  EXPECT_EQ(place_cache(config), "");
}

TEST_F(PlacesOfCaches, EachSourceOfAMixtureHasItsOwn) {
  const Config config = mixture(
      entry("a", ", weight: 2") + ", " + entry("b", ", stages: random_map(slowly)") + ", " +
          entry("c", ", stages: \"filter(slow) | cache\"") + ", " + entry("d", ", cache: stages"),
      {"data.stages=filter(slow) | mixup(0.3)", "data.cache=auto", "data.cache_bytes=40000000"});
  Config placed = config;
  const std::string line = place_cache(placed);
  // Nothing slow can be kept of source b. On a busy machine its records may seem slow.
  const bool b_has_one = stages_of_sources(placed)[1] == "cache | random_map(slowly)";
  EXPECT_THAT(line, AllOf(HasSubstr("input: source a: a cache behind filter saves"),
                          HasSubstr("of 10.0 MB"),
                          HasSubstr(b_has_one ? "; source b: a cache behind the records saves"
                                              : "; source b: no cache, because"),
                          HasSubstr("; source c: as its stages say; source d: as its stages say; "
                                    "to keep it: data.cache=stages, in source a stages: "
                                    "\"filter(slow) | cache\"")));
  EXPECT_FALSE(wants_cache_choice(placed));
  // The stages for batches stay those of the mixture, and the other keys those of their entries.
  EXPECT_EQ(placed.data.stages, config.data.stages);
  EXPECT_THAT(stages_of_sources(placed),
              ElementsAre("filter(slow) | cache",
                          b_has_one ? "cache | random_map(slowly)" : "random_map(slowly)",
                          "filter(slow) | cache", config.data.stages));
  EXPECT_EQ(data::weights_of(placed.data, data::sources_of(placed.data))[0].weights,
            data::weights_of(config.data, data::sources_of(config.data))[0].weights);
  EXPECT_EQ(data::caches_in_memory(placed.data), b_has_one ? 6 : 4);
  EXPECT_EQ(input_plan_of(placed).digest(), input_plan_of(config).digest());
  // A launcher hands the choice on as settings.
  EXPECT_EQ(load_config({{}, to_settings(placed)}).data.sources, placed.data.sources);
  const Training with_caches = training_of(placed);
  EXPECT_EQ(with_caches.options.caches, b_has_one ? 6 : 4);
  EXPECT_TRUE(with_caches.train->cache_use().has_value());
}

TEST_F(PlacesOfCaches, ASourceAloneMayAskForOne) {
  Config config =
      mixture(entry("a", ", cache: auto") + ", " + entry("b"), {"data.stages=filter(slow)"});
  EXPECT_TRUE(wants_cache_choice(config));
  EXPECT_THAT(place_cache(config), AllOf(HasSubstr("source a: a cache behind filter"),
                                         HasSubstr("source b: as its stages say")));
  EXPECT_THAT(stages_of_sources(config), ElementsAre("filter(slow) | cache", "filter(slow)"));
  EXPECT_FALSE(wants_cache_choice(config));
}

TEST_F(PlacesOfCaches, DocumentsThatAMixturePadsAreMeasuredToo) {
  Config config = load(
      {"data.name=mixture", "data.cache=auto", "data.stages=bucket | filter(slow) | pad",
       fmt::format("data.sources=[{{name: jsonl, path: {}/documents.jsonl}}]", folder_.string())},
      "gpt");
  EXPECT_THAT(place_cache(config), HasSubstr("source 1: a cache behind filter saves"));
  EXPECT_THAT(stages_of_sources(config), ElementsAre("filter(slow) | cache"));
  EXPECT_EQ(config.data.stages, "bucket | filter(slow) | pad");
}

TEST_F(PlacesOfCaches, AZipHasOneForTheWholeRecord) {
  Config config =
      load({"data.name=zip", "data.stages=filter(slow)", "data.cache=auto", "data.target=label",
            fmt::format("data.sources=[{}, {{name: csv, path: {}/more.csv, cache: auto}}]",
                        entry("rows"), folder_.string())});
  EXPECT_THAT(place_cache(config), HasSubstr("input: a cache behind filter"));
  EXPECT_EQ(config.data.stages, "filter(slow) | cache");
  EXPECT_TRUE(training_of(config).train->cache_use().has_value());
}

TEST_F(PlacesOfCaches, TwoWordsAboutOneCacheAreRefused) {
  const auto refusal = [&](const std::string& entries, std::vector<std::string> settings) {
    return message_of(ErrorCode::invalid_argument,
                      [&] { choose_cache(mixture(entries, std::move(settings))); });
  };
  EXPECT_THAT(refusal(entry("a"), {"data.cache=auto", "data.stages=filter(slow) | cache"}),
              HasSubstr("data.cache is auto, and data.stages has a stage cache"));
  EXPECT_THAT(refusal(entry("a", ", cache: auto, stages: \"filter(slow) | cache\""), {}),
              HasSubstr("source a: data.cache is auto, and data.stages has a stage cache"));
}

TEST_F(PlacesOfCaches, AProcessThatALauncherStartedNeedsTheWorldOfItsJob) {
  const Config config =
      load({"data.name=csv", fmt::format("data.path={}/rows.csv", folder_.string()),
            "data.stages=filter(slow)", "data.cache=auto"});
  const std::map<std::string, std::string> job{
      {"RANK", "0"}, {"WORLD_SIZE", "1"}, {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "1"}};
  for (const auto& [name, value] : job) setenv(name.c_str(), value.c_str(), 1);
  const std::string refusal = message_of(ErrorCode::unsupported, [&] { training_of(config); });
  for (const auto& [name, value] : job) unsetenv(name.c_str());
  EXPECT_THAT(refusal, AllOf(HasSubstr("data.cache is auto"), HasSubstr("the job's World")));
  World world = World::join(config.world, Environment(job));
  EXPECT_TRUE(training_of(config, world).train->cache_use().has_value());
}

TEST_F(PlacesOfCaches, AChoiceTravelsAsJsonWithoutPaths) {
  const CacheChoice choice{"decode | mixup", {std::nullopt, "decode | cache"}, "input: a line"};
  const auto other = cache_choice_from(Json::parse(to_json(choice).dump()));
  ASSERT_TRUE(other.has_value());
  EXPECT_EQ(other->stages, choice.stages);
  EXPECT_EQ(other->of_sources, choice.of_sources);
  EXPECT_EQ(other->line, choice.line);
  // The files of another host have other paths.
  Config config;
  config.data.cache = "auto";
  config.data.sources =
      R"([{"name":"csv","path":"a","cache":"auto"},{"name":"csv","path":"here/b"}])";
  apply(*other, config);
  EXPECT_EQ(config.data.sources, R"([{"name":"csv","path":"a"},)"
                                 R"({"name":"csv","path":"here/b","stages":"decode | cache"}])");
  EXPECT_EQ(config.data.cache, "stages");
  for (const Json& wrong :
       {Json(), Json(3), Json{{"stages", "a"}, {"line", "b"}},
        Json{{"stages", "a"}, {"of_sources", Json::array({1})}, {"line", "b"}}})
    EXPECT_FALSE(cache_choice_from(wrong).has_value()) << wrong.dump();
}

}  // namespace
}  // namespace trireme::place_cache_test
