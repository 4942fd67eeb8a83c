#include <trireme/plan/sample_order.h>

#include <gmock/gmock.h>
#include <trireme/base/hash.h>
#include <trireme/plan/data_plan.h>
#include <trireme/plan/keyed_order.h>
#include <algorithm>
#include <numeric>
#include <set>

#include "../base/expect_error.h"

namespace trireme::plan::sample_order_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<int64_t> epoch_of(const SampleOrder& order, int64_t epoch) {
  std::vector<int64_t> samples(static_cast<size_t>(order.samples()));
  order.fill(epoch, 0, samples);
  return samples;
}

std::vector<int64_t> sorted(std::vector<int64_t> values) {
  std::sort(values.begin(), values.end());
  return values;
}

std::vector<int64_t> up_to(int64_t n) {
  std::vector<int64_t> numbers(static_cast<size_t>(n));
  std::iota(numbers.begin(), numbers.end(), int64_t{0});
  return numbers;
}

// Cuts `samples` into blocks of different sizes, some of them empty.
std::vector<int64_t> some_blocks(int64_t samples, uint64_t seed) {
  std::vector<int64_t> sizes;
  for (uint64_t i = 0; samples > 0; ++i) {
    sizes.push_back(std::min<int64_t>(samples, static_cast<int64_t>(mix64(seed, i) % 9)));
    samples -= sizes.back();
  }
  return sizes;
}

OrderOptions in_blocks(const std::vector<int64_t>& sizes, int64_t window) {
  OrderOptions order = OrderKind::blocks;
  order.blocks = data_blocks(sizes);
  order.window = window;
  return order;
}

// Every kind of order for a data set of this size.
std::vector<OrderOptions> orders_for(int64_t samples) {
  std::vector<OrderOptions> orders{OrderKind::none, OrderKind::full, OrderKind::index,
                                   OrderKind::blocks};
  for (const int64_t window : {1, 2, 5, 16, 1000})
    orders.push_back(in_blocks(some_blocks(samples, static_cast<uint64_t>(window)), window));
  return orders;
}

TEST(SampleOrder, IsAPermutationForEverySmallSizeAndKind) {
  for (int64_t samples = 0; samples <= 130; ++samples)
    for (const OrderOptions& options : orders_for(samples)) {
      const SampleOrder order(samples, 7, options);
      ASSERT_EQ(sorted(epoch_of(order, 3)), up_to(samples)) << options.describe(7);
      ASSERT_NO_THROW(check(order));
    }
}

TEST(SampleOrder, GivesEachPlaceTheSameSampleHoweverItIsAsked) {
  for (const OrderOptions& options : orders_for(101)) {
    const SampleOrder order(101, 5, options), other(101, 5, options);
    const std::vector<int64_t> all = epoch_of(order, 2);
    for (int64_t place = 100; place >= 0; --place) {
      other.at(place % 3, 50);
      EXPECT_EQ(other.at(2, place), all[static_cast<size_t>(place)]) << options.describe(5);
    }
    std::vector<int64_t> part(37);
    other.fill(2, 29, part);
    EXPECT_TRUE(std::equal(part.begin(), part.end(), all.begin() + 29));
  }
}

// Batches and numbers of ranks change on the way, and the samples come in the same order.
TEST(SampleOrder, DoesNotDependOnBatchOrWorldSize) {
  for (const OrderOptions& options : orders_for(101)) {
    const std::vector<int64_t> all = epoch_of(SampleOrder(101, 5, options), 0);
    for (uint64_t run = 0; run < 20; ++run) {
      std::vector<int64_t> taken;
      uint64_t step = 0;
      for (DataPosition at; at.epoch == 0;) {
        const uint64_t random = mix64(run, step++);
        const DataPlan plan({.samples = 101,
                             .batch = 1 + static_cast<int64_t>(random % 20),
                             .seed = 5,
                             .shuffle = options});
        const std::vector<int64_t> batch = plan.global_batch(at);
        const int ranks = 1 + static_cast<int>((random >> 32) % 7);
        for (int rank = 0; rank < ranks; ++rank) {
          const auto [first, last] = plan.share_of(std::ssize(batch), rank, ranks);
          taken.insert(taken.end(), batch.begin() + first, batch.begin() + last);
        }
        at = plan.next(at);
      }
      ASSERT_EQ(taken, all) << options.describe(5);
    }
  }
}

TEST(SampleOrder, DependsOnSeedAndEpoch) {
  for (const OrderOptions& options : orders_for(101)) {
    if (!options.shuffles()) continue;
    const SampleOrder order(101, 5, options);
    if (options.window == 1 && !options.blocks) continue;
    EXPECT_NE(epoch_of(order, 0), epoch_of(order, 1)) << options.describe(5);
    EXPECT_NE(epoch_of(order, 0), epoch_of(SampleOrder(101, 6, options), 0));
  }
}

// Runs of earlier versions go on with these orders.
TEST(SampleOrder, KeepsTheOrdersOfTheFlagThatItWas) {
  EXPECT_EQ(epoch_of(SampleOrder(50, 3, true), 4), shuffled(50, mix64(3, 4)));
  EXPECT_EQ(epoch_of(SampleOrder(50, 3, false), 4), up_to(50));
  const int64_t large = kLargestOrderTable + 1;
  const KeyedOrder keyed(large, mix64(3, 4));
  const SampleOrder order(large, 3, true);
  for (const int64_t place : {int64_t{0}, large / 2, large - 1})
    EXPECT_EQ(order.at(4, place), keyed.at(place));
}

TEST(SampleOrder, ByIndexIsTheKeyedOrderForEverySize) {
  const KeyedOrder keyed(50, mix64(3, 4));
  const SampleOrder order(50, 3, OrderKind::index);
  for (int64_t place = 0; place < 50; ++place) EXPECT_EQ(order.at(4, place), keyed.at(place));
}

// A reader that goes from window to window needs only the blocks that a window touches.
TEST(SampleOrder, OfBlocksStaysWithinTheBlocksOfAWindow) {
  const std::vector<int64_t> sizes(20, 50);
  for (const int64_t window : {1, 10, 50, 120}) {
    const SampleOrder order(1000, 9, in_blocks(sizes, window));
    std::vector<int64_t> reached;  // Blocks in the order in which they are first read.
    std::set<int64_t> done;
    for (int64_t begin = 0; begin < 1000; begin += window) {
      std::set<int64_t> touched;
      for (int64_t place = begin; place < std::min<int64_t>(1000, begin + window); ++place)
        touched.insert(order.at(0, place) / 50);
      EXPECT_LE(std::ssize(touched), (window + 48) / 50 + 1);
      for (const int64_t block : touched) {
        EXPECT_FALSE(done.contains(block)) << "block " << block << " is read again";
        if (std::find(reached.begin(), reached.end(), block) == reached.end())
          reached.push_back(block);
      }
      // All blocks but those that the next window may go on with are done.
      if (begin + 2 * window < 1000)
        for (const int64_t block : reached) {
          bool comes = false;
          for (int64_t place = begin + window; place < std::min<int64_t>(1000, begin + 2 * window);
               ++place)
            comes = comes || order.at(0, place) / 50 == block;
          if (!comes) done.insert(block);
        }
    }
    EXPECT_EQ(std::ssize(reached), 20);
    EXPECT_FALSE(std::is_sorted(reached.begin(), reached.end()));
  }
}

TEST(SampleOrder, OfBlocksWithoutWindowsReadsEachBlockInSequence) {
  const SampleOrder order(10, 1, in_blocks({3, 0, 4, 3}, 1));
  const std::vector<int64_t> samples = epoch_of(order, 0);
  int64_t jumps = 0;
  for (size_t place = 1; place < samples.size(); ++place)
    jumps += samples[place] != samples[place - 1] + 1;
  EXPECT_LE(jumps, 3);
}

TEST(SampleOrder, RefusesWhatDoesNotFit) {
  const auto made = [](int64_t samples, OrderOptions options) {
    return message_of(ErrorCode::invalid_argument, [&] { SampleOrder(samples, 0, options); });
  };
  EXPECT_THAT(made(10, in_blocks({5, 5}, 0)), HasSubstr("data.window is 0"));
  EXPECT_THAT(made(10, in_blocks({5, 6}, 1)),
              AllOf(HasSubstr("2 blocks have 11 samples"), HasSubstr("10")));
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [] { data_blocks({3, -1}); }),
              HasSubstr("block 1 has -1 samples"));
  const SampleOrder order(5, 0, true);
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { order.at(0, 5); }),
              HasSubstr("places 5 to 6 of epoch 0"));
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { order.at(-1, 0); }),
              HasSubstr("epoch -1"));
}

TEST(SampleOrder, NeedsNoTableOfSamples) {
  const int64_t samples = int64_t{1} << 50;
  const std::vector<int64_t> sizes(1 << 10, samples >> 10);
  for (const OrderOptions& options :
       {OrderOptions(OrderKind::index), in_blocks(sizes, 4096), OrderOptions(true)}) {
    const DataPlan plan({.samples = samples, .batch = 64, .seed = 9, .shuffle = options});
    std::set<int64_t> seen;
    DataPosition at{3, samples / 2 - 1000};
    for (int step = 0; step < 50; ++step, at = plan.next(at))
      for (const int64_t sample : plan.global_batch(at)) EXPECT_TRUE(seen.insert(sample).second);
    EXPECT_NO_THROW(check(plan, 3));
  }
}

TEST(OrderOptions, TakesTheWordsOfAFlag) {
  for (const char* yes : {"full", "true", "True", "yes", "on"})
    EXPECT_EQ(order_kind(yes), OrderKind::full);
  for (const char* no : {"none", "false", "False", "no", "off"})
    EXPECT_EQ(order_kind(no), OrderKind::none);
  EXPECT_EQ(order_kind("index"), OrderKind::index);
  EXPECT_EQ(order_kind("blocks"), OrderKind::blocks);
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [] { order_kind("random"); }),
              AllOf(HasSubstr("data.shuffle is \"random\""), HasSubstr("blocks")));
}

TEST(OrderOptions, IsARecordThatReadsBack) {
  EXPECT_EQ(OrderOptions(true).to_json().dump(), "true");
  EXPECT_EQ(OrderOptions(false).to_json().dump(), "false");
  EXPECT_EQ(OrderOptions(OrderKind::index).to_json().dump(), "\"index\"");
  for (const OrderOptions& options : orders_for(101)) {
    const OrderOptions read = OrderOptions::from_json(options.to_json());
    EXPECT_TRUE(read == options) << options.to_json().dump();
    EXPECT_EQ(epoch_of(SampleOrder(101, 1, read), 1), epoch_of(SampleOrder(101, 1, options), 1));
  }
  EXPECT_FALSE(in_blocks({5, 5}, 3) == in_blocks({5, 5}, 4));
  EXPECT_FALSE(in_blocks({5, 5}, 3) == in_blocks({4, 6}, 3));
  EXPECT_FALSE(OrderOptions(true) == OrderOptions(OrderKind::index));
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [] { OrderOptions::from_json(7); }),
              HasSubstr("cannot be read"));
}

// The log of a run has few bytes, also with a hundred thousand files of different sizes.
TEST(OrderOptions, RecordsManySizesByTheirDigest) {
  std::vector<int64_t> sizes;
  for (uint64_t block = 0; block < 5000; ++block)
    sizes.push_back(static_cast<int64_t>(mix64(block) % 1000));
  const OrderOptions order = in_blocks(sizes, 10);
  const Json json = order.to_json();
  EXPECT_LT(json.dump().size(), 200u);
  const OrderOptions read = OrderOptions::from_json(json);
  EXPECT_TRUE(read == order);
  EXPECT_FALSE(read.is_known());
  EXPECT_THAT(message_of(ErrorCode::invalid_argument,
                         [&] { SampleOrder(order.blocks->samples(), 0, read); }),
              HasSubstr("only digests"));
  const OrderOptions equal_sizes = in_blocks(std::vector<int64_t>(100000, 10), 10);
  EXPECT_LT(equal_sizes.to_json().dump().size(), 200u);
  EXPECT_TRUE(OrderOptions::from_json(equal_sizes.to_json()).is_known());
  Json wrong = equal_sizes.to_json();
  wrong["blocks"]["sizes"][0][0] = 11;
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { OrderOptions::from_json(wrong); }),
              HasSubstr("digest"));
}

TEST(OrderOptions, DescribesItself) {
  EXPECT_EQ(OrderOptions(OrderKind::index).describe(7),
            "shuffled anew each epoch, by index (seed 7)");
  EXPECT_EQ(in_blocks({5, 5}, 3).describe(7),
            "2 blocks in a new order each epoch, shuffled in windows of 3 (seed 7)");
}

}  // namespace
}  // namespace trireme::plan::sample_order_test
