#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/plan/partition.h>
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <tuple>

#include "../base/expect_error.h"

namespace trireme::plan::partition_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Blocks = std::vector<BlockCost>;

Blocks of_parameters(const std::vector<int64_t>& parameters) {
  Blocks blocks;
  for (const int64_t count : parameters)
    blocks.push_back({"block" + std::to_string(blocks.size()), count});
  return blocks;
}

PartitionOptions options_of(int parts, const std::string& cut) {
  PartitionOptions options;
  options.parts = parts;
  options.cut = cut;
  return options;
}

std::string refusal(const Blocks& blocks, const PartitionOptions& options) {
  return message_of(ErrorCode::invalid_argument, [&] { partition(blocks, options); });
}

// Calls `visit` with the first blocks of every contiguous partition, the earliest cuts first.
template <typename Visit>
void each_cut(int blocks, int parts, Visit visit) {
  std::vector<int> first = {0};
  const auto add = [&](auto& self) -> void {
    if (static_cast<int>(first.size()) == parts) {
      visit(first);
      return;
    }
    for (int next = first.back() + 1; next < blocks; ++next) {
      first.push_back(next);
      self(self);
      first.pop_back();
    }
  };
  add(add);
}

// Largest load, sum of squares, bytes across cuts, and the cut itself: the order of preference.
using Rank = std::tuple<int64_t, int64_t, int64_t, std::vector<int>>;

Rank rank_of(const Blocks& blocks, const std::vector<int>& first, PartitionMeasure measure,
             const std::vector<int>& held) {
  int64_t largest = 0, squares = 0, sent = 0;
  for (size_t part = 0; part < first.size(); ++part) {
    const size_t end =
        part + 1 < first.size() ? static_cast<size_t>(first[part + 1]) : blocks.size();
    int64_t load = 0;
    if (measure == PartitionMeasure::memory)
      load += held[part] * blocks[static_cast<size_t>(first[part])].entry_bytes;
    for (size_t b = static_cast<size_t>(first[part]); b < end; ++b) {
      const BlockCost& block = blocks[b];
      if (measure == PartitionMeasure::parameters) load += block.parameters;
      if (measure == PartitionMeasure::time)
        load +=
            std::llround(1e9 * block.forward_seconds) + std::llround(1e9 * block.backward_seconds);
      if (measure == PartitionMeasure::memory)
        load += block.parameter_bytes + held[part] * block.activation_bytes;
    }
    largest = std::max(largest, load);
    squares += load * load;
    if (part + 1 < first.size()) sent += blocks[end - 1].output_bytes;
  }
  return {largest, squares, sent, first};
}

TEST(Partition, IsTheBestOfAllContiguousOnes) {
  std::mt19937 random(1);
  const auto draw = [&](int most) {
    return static_cast<int>(random() % static_cast<unsigned>(most + 1));
  };
  for (int round = 0; round < 400; ++round) {
    const int count = 1 + draw(7), parts = 1 + draw(count - 1);
    Blocks blocks;
    for (int b = 0; b < count; ++b)
      blocks.push_back({std::to_string(b), draw(6), 1e-9 * draw(5), 1e-9 * draw(9), draw(20),
                        draw(9), draw(3), draw(9)});
    blocks[0].parameters = blocks[0].parameter_bytes = 1;
    blocks[0].forward_seconds = 1e-9;
    std::vector<int> held;
    for (int part = 0; part < parts; ++part) held.push_back(draw(4));
    for (const auto measure :
         {PartitionMeasure::parameters, PartitionMeasure::time, PartitionMeasure::memory}) {
      Rank best;
      bool found = false;
      each_cut(count, parts, [&](const std::vector<int>& first) {
        const Rank rank = rank_of(blocks, first, measure, held);
        if (!found || rank < best) best = rank;
        found = true;
      });
      PartitionOptions options = options_of(parts, std::string(to_string(measure)));
      options.micro_batches_held = held;
      const Partition plan = partition(blocks, options);
      check(plan);
      ASSERT_EQ(plan.first, std::get<3>(best)) << plan.describe();
      EXPECT_EQ(*std::max_element(plan.loads.begin(), plan.loads.end()), std::get<0>(best));
    }
  }
}

TEST(Partition, TellsPartsAndBlocks) {
  const Partition plan = partition(of_parameters({4, 1, 1, 1, 1}), options_of(2, "parameters"));
  EXPECT_THAT(plan.first, ElementsAre(0, 1));
  EXPECT_EQ(plan.parts(), 2);
  EXPECT_EQ(plan.blocks_of(0), std::pair(0, 1));
  EXPECT_EQ(plan.blocks_of(1), std::pair(1, 5));
  EXPECT_EQ(plan.part_of(0), 0);
  EXPECT_EQ(plan.part_of(4), 1);
  EXPECT_THAT(plan.loads, ElementsAre(4, 4));
  EXPECT_EQ(plan.evenness, 1);
  EXPECT_EQ(plan.limit, "the parts are even");
}

TEST(Partition, NamesTheBlockThatLimitsIt) {
  Blocks blocks = of_parameters({19, 20, 20, 41});
  blocks.back().name = "head";
  const Partition plan = partition(blocks, options_of(4, "auto"));
  EXPECT_EQ(plan.limit, "block 'head' alone has 41 % of the parameters");
  EXPECT_DOUBLE_EQ(plan.evenness, 1.64);
  EXPECT_THAT(partition(of_parameters({3, 3, 3, 3, 3}), options_of(2, "parameters")).limit,
              HasSubstr("has 60 % of the parameters, and no cut makes the largest part smaller"));
}

TEST(Partition, BreaksTiesByTheBytesAcrossCuts) {
  Blocks blocks = of_parameters({2, 2, 2, 2, 2});
  for (BlockCost& block : blocks) block.output_bytes = 100;
  blocks[2].output_bytes = 7;
  EXPECT_THAT(partition(blocks, options_of(2, "parameters")).first, ElementsAre(0, 3));
  blocks[1].output_bytes = 5;
  const Partition plan = partition(blocks, options_of(2, "parameters"));
  EXPECT_THAT(plan.first, ElementsAre(0, 2));
  EXPECT_THAT(plan.cut_bytes, ElementsAre(5));
}

TEST(Partition, GoesByTimeWhereOneIsKnown) {
  Blocks blocks = of_parameters({10, 1, 1});
  EXPECT_THAT(partition(blocks, options_of(2, "auto")).first, ElementsAre(0, 1));
  blocks[0].forward_seconds = blocks[1].forward_seconds = 1e-3;
  blocks[2].backward_seconds = 2e-3;
  const Partition plan = partition(blocks, options_of(2, "auto"));
  EXPECT_THAT(plan.first, ElementsAre(0, 2));
  EXPECT_THAT(plan.describe(), HasSubstr("cut by time"));
  EXPECT_THAT(plan.describe(), HasSubstr("2.000 ms"));
}

TEST(Partition, GivesEarlyStagesOfAPipelineFewerBlocks) {
  Blocks blocks = of_parameters({1, 1, 1, 1, 1, 1});
  for (BlockCost& block : blocks) block.activation_bytes = 10;
  PartitionOptions options = options_of(2, "memory");
  EXPECT_THAT(partition(blocks, options).first, ElementsAre(0, 3));
  options.micro_batches_held = {2, 1};
  const Partition plan = partition(blocks, options);
  EXPECT_THAT(plan.first, ElementsAre(0, 2));
  EXPECT_THAT(plan.loads, ElementsAre(40, 40));
}

TEST(Partition, IsCutByHand) {
  const Blocks blocks = of_parameters({1, 1, 1, 1, 1, 1, 1, 1});
  for (const char* cut : {"block3,block6", " block3 , 6 ", "3,6", "3+3+2"})
    EXPECT_THAT(partition(blocks, options_of(0, cut)).first, ElementsAre(0, 3, 6)) << cut;
  EXPECT_THAT(partition(blocks, options_of(3, "3,6")).parts(), 3);
  const Partition uneven = partition(blocks, options_of(2, "1"));
  EXPECT_TRUE(uneven.by_hand);
  EXPECT_THAT(uneven.limit, HasSubstr("has 88 % of the parameters; the best cut by parameters has "
                                      "1.00x the mean in its largest part"));
}

TEST(Partition, TakesANameBeforeANumber) {
  Blocks blocks = of_parameters({1, 1, 1});
  blocks[1].name = "2", blocks[2].name = "1";
  EXPECT_THAT(partition(blocks, options_of(0, "2")).first, ElementsAre(0, 1));
}

TEST(Partition, RefusesWhatCannotBeCut) {
  const Blocks blocks = of_parameters({1, 1, 1, 1});
  EXPECT_THAT(refusal(blocks, options_of(5, "parameters")),
              AllOf(HasSubstr("5 parts of 4 blocks"), HasSubstr("try: at most 4 parts")));
  EXPECT_THAT(refusal({}, options_of(1, "parameters")), HasSubstr("no blocks"));
  EXPECT_THAT(refusal(blocks, options_of(0, "auto")), HasSubstr("needs a number of parts"));
  EXPECT_THAT(refusal(blocks, options_of(-1, "auto")), HasSubstr("-1 parts"));
  EXPECT_THAT(refusal(blocks, options_of(2, "time")),
              HasSubstr("the cut is by time, and no block has a cost of that kind"));
  Blocks wrong = blocks;
  wrong[2].parameters = -3;
  EXPECT_THAT(refusal(wrong, options_of(2, "auto")), HasSubstr("'block2' has -3 parameters"));
  wrong = blocks;
  wrong[1].forward_seconds = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(refusal(wrong, options_of(2, "time")), HasSubstr("'block1' has nan ns of forward"));
  wrong = blocks;
  for (BlockCost& block : wrong) block.parameter_bytes = int64_t{1} << 59;
  EXPECT_THAT(refusal(wrong, options_of(2, "memory")), HasSubstr("too large to add"));
}

TEST(Partition, RefusesACutByHandAndNamesTheEntry) {
  const Blocks blocks = of_parameters({1, 1, 1, 1});
  const auto message = [&](const std::string& cut) { return refusal(blocks, options_of(0, cut)); };
  EXPECT_THAT(message("blokc2"), AllOf(HasSubstr("no block is called 'blokc2'"),
                                       HasSubstr("the nearest is 'block2'")));
  EXPECT_THAT(message("block2,"), HasSubstr("no block is called ''"));
  EXPECT_THAT(message("9"), HasSubstr("names block 9, and the model has the blocks 0 to 3"));
  EXPECT_THAT(message("block3,block1"), HasSubstr("do not ascend: 'block1' is block 1"));
  EXPECT_THAT(message("2,2"), HasSubstr("twice, so part 1 is empty"));
  EXPECT_THAT(message("block0"), HasSubstr("part 0 is empty"));
  EXPECT_THAT(message("2+0+2"), HasSubstr("leaves part 1 empty"));
  EXPECT_THAT(message("2+1"), HasSubstr("has 3 blocks, and the model 4"));
  EXPECT_THAT(message("2+x"), HasSubstr("'x' in the cut '2+x' is not a number of blocks"));
  EXPECT_THAT(refusal(blocks, options_of(3, "2")),
              HasSubstr("makes 2 parts, and 3 are asked for"));
}

TEST(Partition, SaysTheLeastMemoryThatWorks) {
  Blocks blocks = of_parameters({1, 1, 1, 1});
  for (BlockCost& block : blocks) block.parameter_bytes = 100, block.activation_bytes = 10;
  PartitionOptions options = options_of(2, "memory");
  options.micro_batches_held = {3, 1};
  options.limit_bytes = 260;
  EXPECT_EQ(partition(blocks, options).parts(), 2);
  options.limit_bytes = 259;
  EXPECT_THAT(refusal(blocks, options),
              AllOf(HasSubstr("part 0 ('block0' to 'block1') needs 260 B"),
                    HasSubstr("a limit of 260 bytes: no cut into 2 parts needs less")));
  options.cut = "3";
  options.limit_bytes = 300;
  EXPECT_THAT(refusal(blocks, options), HasSubstr("a cut by memory, which needs 260 bytes"));
  options.limit_bytes = -1;
  EXPECT_THAT(refusal(blocks, options), HasSubstr("the limit is -1 bytes"));
  options.micro_batches_held = {1};
  EXPECT_THAT(refusal(blocks, options), HasSubstr("given for 1 of 2 parts"));
}

TEST(Partition, ReportsTiedWeights) {
  PartitionOptions options = options_of(2, "parameters");
  options.shared = {{3, 0}, {1, 0}};
  const Partition plan = partition(of_parameters({1, 1, 1, 1}), options);
  ASSERT_EQ(plan.shared.size(), 2U);
  EXPECT_THAT(plan.shared[0].blocks, ElementsAre(0, 3));
  EXPECT_THAT(plan.shared[0].parts, ElementsAre(0, 1));
  EXPECT_THAT(plan.shared[1].parts, ElementsAre(0));
  EXPECT_THAT(plan.describe(), HasSubstr("a tensor of 'block0', 'block3' in parts 0, 1"));
  EXPECT_EQ(plan.to_json()["shared"][0]["parts"], Json({0, 1}));
  options.shared = {{4, 0}};
  EXPECT_THAT(refusal(of_parameters({1, 1, 1, 1}), options),
              HasSubstr("shared by the blocks [4, 0]"));
}

TEST(Partition, IsPrintedAsJson) {
  const Json json = partition(of_parameters({2, 1, 1}), options_of(2, "parameters")).to_json();
  EXPECT_EQ(json["parts"][1]["blocks"], Json({"block1", "block2"}));
  EXPECT_EQ(json["parts"][1]["first"], 1);
  EXPECT_EQ(json["parts"][0]["load"], 2);
  EXPECT_EQ(json["measure"], "parameters");
}

TEST(Partition, CheckNamesAnEmptyPart) {
  Partition plan = partition(of_parameters({1, 1, 1}), options_of(2, "parameters"));
  check(plan);
  plan.first = {0, 3};
  EXPECT_THAT(message_of(ErrorCode::internal, [&] { check(plan); }), HasSubstr("part 1"));
  plan.first = {1, 2};
  EXPECT_THAT(message_of(ErrorCode::internal, [&] { check(plan); }), HasSubstr("first block"));
}

}  // namespace
}  // namespace trireme::plan::partition_test
