#include <gmock/gmock.h>

#include <trireme/data/pipeline/cache_place.h>
#include <trireme/data/pipeline/functions.h>
#include <trireme/data/pipeline/measured_places.h>
#include <chrono>

#include "made_records.h"

namespace trireme::data::cache_place_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> texts_of(const std::string& stages, SampleForm first) {
  std::vector<std::string> texts;
  for (const CachePlace& place : places_of_cache(parse_stages("", stages), first)) {
    check_forms("data.stages", place.stages, first);  // Each place is allowed.
    texts.push_back(describe(place.stages));
  }
  return texts;
}

TEST(CachePlaces, AreBehindTheStagesThatAreNotRandom) {
  EXPECT_THAT(texts_of("decode | resize(8) | flip | normalise", SampleForm::record),
              ElementsAre("decode | cache | resize(8) | flip | normalise",
                          "decode | resize(8) | cache | flip | normalise"));
  EXPECT_THAT(
      texts_of("take(5) | decode | normalise | repeat(2) | map(f) | mixup", SampleForm::record),
      ElementsAre("take(5) | decode | cache | normalise | repeat(2) | map(f) | mixup",
                  "take(5) | decode | normalise | cache | repeat(2) | map(f) | mixup"));
  // With a cache behind it a function would get another draw.
  EXPECT_THAT(texts_of("filter(g) | map(f) | pad", SampleForm::tensors),
              ElementsAre("cache | filter(g) | map(f) | pad", "filter(g) | cache | map(f) | pad"));
  // A crop of the whole image would have other pixels.
  EXPECT_THAT(texts_of("decode | random_resized_crop(8) | normalise", SampleForm::record),
              IsEmpty());
  EXPECT_THAT(texts_of("", SampleForm::tensors), ElementsAre("cache"));
  EXPECT_THAT(texts_of("flip | normalise", SampleForm::image), IsEmpty());
  EXPECT_THAT(texts_of("pack(8)", SampleForm::tensors), IsEmpty());
  EXPECT_THAT(texts_of("decode | cache | normalise", SampleForm::record), IsEmpty());
}

// The work for a sample is 10 without a cache.
std::vector<CachePlace> three_places() {
  std::vector<CachePlace> places =
      places_of_cache(parse_stages("", "decode | resize(8) | normalise"), SampleForm::record);
  places[0].bytes = 1000, places[0].seconds = 3;
  places[1].bytes = 100, places[1].seconds = 1;
  places[2].bytes = 400, places[2].seconds = 0.5;
  return places;
}

TEST(CachePlaces, TheBestSavesMostInTheMemoryThatThereIs) {
  auto places = three_places();
  // normalise saves a little more than resize, for four times the memory.
  EXPECT_EQ(best_place(places, 10, 5000)->after, "resize");
  places[1].seconds = 5;
  EXPECT_EQ(best_place(places, 10, 5000)->after, "normalise");
  // A cache of a fifth of the rows saves less than one of all smaller images.
  EXPECT_EQ(best_place(places, 10, 100)->after, "resize");
  EXPECT_NEAR(saved_share(places[2], 10, 100), 0.25 * 0.95, 1e-9);
  EXPECT_EQ(best_place(places, 10, 0), nullptr);
}

TEST(CachePlaces, ThereIsNoneThatSavesLittle) {
  auto places = three_places();
  for (CachePlace& place : places) place.seconds = 9.5;
  EXPECT_EQ(best_place(places, 10, 5000), nullptr);
  EXPECT_THAT(describe_choice(places, 10, 5000),
              AllOf(HasSubstr("no cache"), HasSubstr("saves 5 %")));
  EXPECT_EQ(best_place({}, 10, 5000), nullptr);
  EXPECT_THAT(describe_choice({}, 10, 5000), HasSubstr("no stage may stand in front"));
}

TEST(CachePlaces, AreDescribedWithWhatTheySaveAndTake) {
  EXPECT_THAT(describe_choice(three_places(), 10, 5000),
              AllOf(HasSubstr("behind resize saves 90 %"), HasSubstr("100 B of")));
  EXPECT_THAT(describe_choice(three_places(), 10, 50), HasSubstr("hold 50 % of the samples"));
}

// A function that takes its time, so that the measure cannot miss it.
void wait(int milliseconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
  while (std::chrono::steady_clock::now() < end) continue;
}

TEST(CachePlaces, AreMeasuredByAFewSamples) {
  register_filter("slow", [](const Example&) {
    wait(4);
    return true;
  });
  register_map("slow at random", [](Example one, const Draw&) {
    wait(1);
    return one;
  });
  const auto reader = std::make_shared<MadeImages>(1000, 6, 6);
  const Stages stages = parse_stages(
      "data.stages", "take(900) | normalise | filter(slow) | random_map(slow at random)");
  const auto [places, seconds] = measure_places(reader, {.classes = 10}, stages, 900);
  ASSERT_EQ(places.size(), 2u);
  EXPECT_GE(seconds, 0.005);
  EXPECT_GE(places[0].seconds, 0.005);
  EXPECT_GE(places[1].seconds, 0.001);
  EXPECT_LT(places[1].seconds, seconds);
  EXPECT_GE(places[1].bytes, 900 * 3 * 6 * 6 * 4);
  EXPECT_LE(places[1].bytes, 2 * 900 * (3 * 6 * 6 * 4 + 300));
  EXPECT_EQ(best_place(places, seconds, 1 << 30)->after, "filter");
}

}  // namespace
}  // namespace trireme::data::cache_place_test
