#include <trireme/plan/mixture.h>

#include <gmock/gmock.h>
#include <trireme/base/hash.h>
#include <trireme/plan/data_plan.h>
#include <trireme/plan/mixture_maker.h>
#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "../base/expect_error.h"

namespace trireme::plan::mixture_test {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

MixtureOptions mixture_of(const std::vector<int64_t>& sizes, const std::vector<double>& weights,
                          WhenExhausted when = WhenExhausted::repeat, int64_t samples = 0) {
  MixtureOptions options;
  for (const int64_t size : sizes)
    options.sources.push_back(
        {std::string(1, static_cast<char>('a' + options.sources.size())), size, {}});
  options.weights = {{{}, weights}};
  options.when = when;
  options.samples = samples;
  return options;
}

MixtureOptions random_mixture(uint64_t seed, WhenExhausted when) {
  auto draw = [&, i = uint64_t{0}](uint64_t below) mutable { return mix64(seed, i++) % below; };
  const size_t sources = 1 + draw(7);
  std::vector<int64_t> sizes;
  std::vector<double> weights;
  for (size_t source = 0; source < sources; ++source) {
    sizes.push_back(1 + static_cast<int64_t>(draw(60)));
    weights.push_back(source > 0 && draw(6) == 0 ? 0 : std::pow(2.0, -double(draw(80)) / 10));
  }
  const bool repeats = when == WhenExhausted::repeat;
  MixtureOptions options =
      mixture_of(sizes, weights, when, repeats ? 1 + static_cast<int64_t>(draw(200)) : 0);
  if (!repeats || options.samples < 3) return options;
  for (const DataPosition from : {DataPosition{0, options.samples / 2}, DataPosition{2, 1}}) {
    std::rotate(weights.begin(), weights.begin() + 1, weights.end());
    options.weights.push_back({from, weights});
  }
  return options;
}

// The places of the first epochs one by one, with a count for each source.
TEST(Mixture, TakesEachSourceInItsOrderAndNumbersEachPlaceOnce) {
  for (uint64_t seed = 0; seed < 300; ++seed)
    for (const WhenExhausted when :
         {WhenExhausted::stop, WhenExhausted::repeat, WhenExhausted::renormalise}) {
      const Mixture mixture(random_mixture(seed, when));
      ASSERT_NO_THROW(check(mixture)) << mixture.to_json().dump();
      const auto& sources = mixture.options().sources;
      std::vector<int64_t> used(sources.size(), 0);
      for (int64_t epoch = 0; epoch < 4; ++epoch) {
        std::set<int64_t> numbers;
        std::vector<int64_t> of_epoch(sources.size(), 0);
        for (int64_t place = 0; place < mixture.samples(); ++place) {
          ASSERT_EQ(mixture.counts(epoch, place), of_epoch);
          const auto at = mixture.at(epoch, place);
          const int64_t size = sources[at.source].samples;
          if (when != WhenExhausted::repeat) used[at.source] = epoch * size + of_epoch[at.source];
          ASSERT_EQ(at.pass * size + at.place, used[at.source]) << mixture.to_json().dump();
          ++used[at.source];
          ++of_epoch[at.source];
          const int64_t number = mixture.number_of(epoch, {at.source, at.pass, at.place});
          ASSERT_TRUE(number >= 0 && number < mixture.numbers());
          ASSERT_TRUE(numbers.insert(number).second);
          const auto back = mixture.sample_of(epoch, number);
          ASSERT_EQ(back.source, at.source);
          ASSERT_EQ(back.pass, at.pass);
          ASSERT_EQ(back.index, at.place);
        }
      }
    }
}

// The bound of the header, against real shares of whole counts.
TEST(Mixture, KeepsEveryPrefixNearTheShares) {
  double worst = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    MixtureOptions options = random_mixture(seed, WhenExhausted::repeat);
    options.weights.resize(1);
    options.samples = 50 + static_cast<int64_t>(mix64(seed) % 400);
    const Mixture mixture(options);
    const std::vector<int64_t> all = mixture.counts(0, mixture.samples());
    const double sum =
        std::accumulate(options.weights[0].weights.begin(), options.weights[0].weights.end(), 0.0);
    for (size_t source = 0; source < all.size(); ++source)
      EXPECT_LT(std::abs(double(all[source]) -
                         options.weights[0].weights[source] / sum * double(options.samples)),
                1);
    for (int64_t place = 0; place <= mixture.samples(); ++place) {
      const std::vector<int64_t> counts = mixture.counts(0, place);
      for (size_t source = 0; source < counts.size(); ++source)
        worst =
            std::max(worst, std::abs(double(counts[source]) - double(all[source]) * double(place) /
                                                                  double(mixture.samples())));
    }
  }
  RecordProperty("worst", std::to_string(worst));
  EXPECT_LT(worst, kMixtureBound) << worst;
  EXPECT_GT(worst, 0.5);  // The test would not see anything if nothing were off.
}

TEST(Mixture, ApportionsByLargestRemainders) {
  EXPECT_THAT(apportioned(10, {1, 1, 1}), ElementsAre(4, 3, 3));
  EXPECT_THAT(apportioned(100, {0.5, 0.3, 0.2}), ElementsAre(50, 30, 20));
  EXPECT_THAT(apportioned(7, {5, 0, 2}), ElementsAre(5, 0, 2));
  EXPECT_THAT(apportioned(3, {0.4, 0.4, 0.2}), ElementsAre(1, 1, 1));
  EXPECT_THAT(apportioned(0, {1, 2}), ElementsAre(0, 0));
}

TEST(Mixture, SpreadsTheSourcesEvenly) {
  const Mixture mixture(mixture_of({30, 10}, {3, 1}));
  std::string places;
  for (int64_t place = 0; place < 12; ++place)
    places += mixture.options().sources[mixture.at(0, place).source].name;
  EXPECT_EQ(std::count(places.begin(), places.end(), 'b'), 3);
  for (size_t first = 0; first < 12; first += 4)
    EXPECT_EQ(places.substr(first, 4).find('b') == std::string::npos, false) << places;
}

TEST(Mixture, StopsWithTheFirstSourceThatIsExhausted) {
  const Mixture mixture(mixture_of({100, 10}, {0.5, 0.5}, WhenExhausted::stop));
  EXPECT_EQ(mixture.samples(), 20);
  EXPECT_THAT(mixture.counts(0, 20), ElementsAre(10, 10));
}

TEST(Mixture, RenormalisesUntilAllAreUsed) {
  const Mixture mixture(mixture_of({100, 10, 50}, {0.5, 0.3, 0.2}, WhenExhausted::renormalise));
  EXPECT_EQ(mixture.samples(), 160);
  EXPECT_THAT(mixture.counts(0, 160), ElementsAre(100, 10, 50));
  // Ten of the second source last for 33 places; then the others share as 5 to 2.
  EXPECT_EQ(mixture.counts(0, 33)[1], 10);
  const std::vector<int64_t> at = mixture.counts(0, 33), later = mixture.counts(0, 33 + 70);
  EXPECT_NEAR(double(later[0] - at[0]), 50, 2);
  EXPECT_NEAR(double(later[2] - at[2]), 20, 2);
}

// An epoch that takes a part of a source leaves the rest to the next one.
TEST(Mixture, GoesOnWithAPassInTheNextEpoch) {
  const Mixture mixture(mixture_of({10, 4}, {0.5, 0.5}, WhenExhausted::repeat, 10));
  std::vector<std::pair<int64_t, int64_t>> of_a;
  for (int64_t epoch = 0; epoch < 4; ++epoch)
    for (int64_t place = 0; place < 10; ++place)
      if (const auto at = mixture.at(epoch, place); at.source == 0)
        of_a.emplace_back(at.pass, at.place);
  ASSERT_EQ(of_a.size(), 20u);
  for (size_t i = 0; i < of_a.size(); ++i)
    EXPECT_EQ(of_a[i], (std::pair<int64_t, int64_t>(i / 10, i % 10)));
}

TEST(Mixture, ChangesWeightsAtThePosition) {
  MixtureOptions options = mixture_of({1000, 1000}, {1, 1}, WhenExhausted::repeat, 100);
  options.weights.push_back({{1, 40}, {1, 3}});
  const Mixture mixture(options);
  EXPECT_THAT(mixture.counts(0, 100), ElementsAre(50, 50));
  EXPECT_THAT(mixture.counts(1, 40), ElementsAre(20, 20));
  EXPECT_THAT(mixture.counts(1, 100), ElementsAre(20 + 15, 20 + 45));
  EXPECT_THAT(mixture.counts(2, 100), ElementsAre(25, 75));
  EXPECT_THAT(mixture.counts(1000, 100), ElementsAre(25, 75));
  EXPECT_NO_THROW(check(mixture));
}

TEST(Mixture, OfManySamplesNeedsNoTable) {
  const int64_t large = int64_t{1} << 40;
  const Mixture mixture(
      mixture_of({large, 3 * large, 1000}, {0.6, 0.3999, 0.0001}, WhenExhausted::repeat, large));
  EXPECT_NO_THROW(check(mixture));
  const std::vector<int64_t> counts = mixture.counts(7, large);
  EXPECT_EQ(counts[0] + counts[1] + counts[2], large);
  EXPECT_GE(mixture.at(7, large - 1).pass, 1);
}

TEST(Mixture, ReadsItsOwnJson) {
  for (uint64_t seed = 0; seed < 20; ++seed)
    for (const WhenExhausted when : {WhenExhausted::repeat, WhenExhausted::renormalise}) {
      const Mixture mixture(random_mixture(seed, when));
      const Mixture read = Mixture::from_json(Json::parse(mixture.to_json().dump()));
      EXPECT_EQ(read.to_json(), mixture.to_json());
      EXPECT_EQ(read.at(3, mixture.samples() - 1).pass, mixture.at(3, mixture.samples() - 1).pass);
    }
}

TEST(Mixture, DescribesItself) {
  MixtureOptions options = mixture_of({300, 100}, {3, 1}, WhenExhausted::repeat, 100);
  options.weights.push_back({{1, 0}, {1, 1}});
  EXPECT_EQ(Mixture(options).describe(),
            "  mixture of a 75%, b 25%\n"
            "  from epoch 1, sample 0: a 50%, b 50%\n"
            "  a: 75 of its 300 samples in epoch 0\n"
            "  b: 25 of its 100 samples in epoch 0\n");
}

TEST(Mixture, RefusesWhatMakesNoSense) {
  const auto made = [](MixtureOptions options) {
    return message_of(ErrorCode::invalid_argument, [&] { Mixture{std::move(options)}; });
  };
  EXPECT_THAT(made({}), HasSubstr("no source"));
  EXPECT_THAT(made(mixture_of({5, 0}, {1, 1})), HasSubstr("source b has 0 samples"));
  EXPECT_THAT(made(mixture_of({5, 5}, {1})), HasSubstr("1 weights"));
  EXPECT_THAT(made(mixture_of({5, 5}, {1, -1})), HasSubstr("source b"));
  EXPECT_THAT(made(mixture_of({5, 5}, {0, 0})), HasSubstr("add up to 0"));
  EXPECT_THAT(made(mixture_of({5, 5}, {1, 1}, WhenExhausted::stop, 10)), HasSubstr("stop"));
  MixtureOptions later = mixture_of({5, 5}, {1, 1}, WhenExhausted::renormalise);
  later.weights.push_back({{1, 0}, {1, 2}});
  EXPECT_THAT(made(later), HasSubstr("another length"));
  MixtureOptions back = mixture_of({5, 5}, {1, 1});
  back.weights.push_back({{0, 0}, {1, 2}});
  EXPECT_THAT(made(back), HasSubstr("behind later ones"));
  MixtureOptions dry = mixture_of({5, 5}, {1, 0}, WhenExhausted::renormalise);
  dry.weights.push_back({{0, 8}, {0, 1}});
  EXPECT_THAT(made(dry), AllOf(HasSubstr("place 5"), HasSubstr("begin at 8")));
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [] { when_exhausted("wait"); }),
              HasSubstr("renormalise"));
}

// The batches of a mixture: each number of an epoch once, for every kind of order within sources.
TEST(Mixture, IsAnOrderOfADataPlan) {
  for (const OrderKind kind :
       {OrderKind::none, OrderKind::full, OrderKind::index, OrderKind::blocks})
    for (uint64_t seed = 0; seed < 30; ++seed) {
      OrderOptions order = kind;
      order.window = 7;
      order.mixture = std::make_shared<const Mixture>(random_mixture(seed, WhenExhausted::repeat));
      const Mixture& mixture = *order.mixture;
      const DataPlan plan(
          {.samples = mixture.samples(), .batch = 8, .seed = seed, .shuffle = order});
      for (int ranks = 1; ranks <= 5; ++ranks)
        ASSERT_NO_THROW(check(plan, ranks)) << plan.describe(ranks);
      // In each pass every sample of a source comes once.
      std::set<std::tuple<size_t, int64_t, int64_t>> seen;
      for (DataPosition at; at.epoch < 3; at = plan.next(at))
        for (const int64_t number : plan.global_batch(at)) {
          const auto [source, pass, index] = mixture.sample_of(at.epoch, number);
          ASSERT_TRUE(seen.emplace(source, pass, index).second);
        }
      ASSERT_TRUE(OrderOptions::from_json(order.to_json()) == order);
    }
}

}  // namespace
}  // namespace trireme::plan::mixture_test
