#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/plan/row_shards.h>
#include <algorithm>

#include "../base/expect_error.h"

namespace trireme::plan::row_shards_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

using Blocks = std::vector<std::vector<int>>;

struct Model {
  std::string name;
  std::vector<TensorSpec> params;
  Blocks blocks;
};

Blocks all_in_one(const std::vector<TensorSpec>& params) {
  Blocks blocks(1);
  for (size_t i = 0; i < params.size(); ++i) blocks[0].push_back(static_cast<int>(i));
  return blocks;
}

// Layers of all sizes that matter: without dimensions or elements, of one row, odd, even and
// large, of two types, with frozen ones between them.
std::vector<Model> models() {
  std::vector<Model> models = {{"empty", {}, {}}};
  const std::vector<std::vector<int64_t>> shapes = {{},       {0},       {1},       {3},
                                                    {64},     {0, 4},    {1, 7},    {5, 3},
                                                    {37, 11}, {1000, 3}, {840, 64}, {7, 999, 2}};
  std::vector<TensorSpec> mixed;
  for (size_t i = 0; i < shapes.size(); ++i) {
    const TensorSpec spec{fmt::format("p{}", i), shapes[i]};
    models.push_back({spec.name, {spec}, {{0}}});
    for (const DType dtype : {DType::float32, DType::bfloat16})
      for (const bool trainable : {true, false})
        mixed.push_back({fmt::format("{}.{}.{}", spec.name, to_string(dtype), trainable),
                         shapes[i], dtype, trainable});
  }
  models.push_back({"mixed", mixed, all_in_one(mixed)});
  Blocks halves(2), tied(3);
  for (int i = 0; i < static_cast<int>(mixed.size()); ++i) {
    halves[static_cast<size_t>(i % 2)].push_back(i);
    tied[static_cast<size_t>(i % 3)].push_back(i);
    if (i % 5 == 0) tied[static_cast<size_t>((i + 1) % 3)].push_back(i);
  }
  models.push_back({"halves", mixed, halves});
  models.push_back({"tied", mixed, tied});
  models.push_back({"no_blocks", mixed, {}});
  return models;
}

template <typename Body>
void for_each_case(Body body) {
  for (const Model& model : models())
    for (int ranks = 1; ranks <= 16; ++ranks)
      for (const bool divide_frozen : {false, true})
        for (const int64_t capacity : {256, 4096, 5 << 20}) {
          SCOPED_TRACE(fmt::format("{} on {} ranks, {} bytes", model.name, ranks, capacity));
          const RowShardOptions options{{capacity, capacity}, divide_frozen};
          body(model, plan_row_shards(model.params, model.blocks, ranks, options), options);
        }
}

TEST(RowShards, GiveEachRowToOneRank) {
  for_each_case([](const Model& model, const RowShards& shards, const RowShardOptions& options) {
    check(shards, model.params);
    for (size_t i = 0; i < model.params.size(); ++i) {
      const TensorSpec& spec = model.params[i];
      const bool divided =
          !spec.shape.empty() && spec.elements() > 0 && (spec.trainable || options.divide_frozen);
      ASSERT_EQ(shards.divides(static_cast<int>(i)), divided) << spec.name;
      if (!divided) continue;
      std::vector<int> owners(static_cast<size_t>(spec.shape[0]), 0);
      for (const auto& [from, to] : shards.rows[i])
        for (int64_t row = from; row < to; ++row) ++owners.at(static_cast<size_t>(row));
      ASSERT_TRUE(std::ranges::all_of(owners, [](int count) { return count == 1; })) << spec.name;
    }
  });
}

TEST(RowShards, AreBalancedToAboutTheLargestPart) {
  for_each_case([](const Model& model, const RowShards& shards, const RowShardOptions&) {
    for (const bool trainable : {true, false}) {
      int64_t largest = 0;  // The bytes of a row, or of a parameter that is not cut.
      for (const TensorSpec& spec : model.params)
        if (!spec.shape.empty() && spec.elements() > 0)
          largest =
              std::max(largest, spec.bytes() < 512 * shards.ranks ? spec.bytes()
                                                                  : spec.bytes() / spec.shape[0]);
      std::vector<int64_t> bytes(static_cast<size_t>(shards.ranks), 0);
      for (size_t i = 0; i < model.params.size(); ++i)
        if (shards.divides(static_cast<int>(i)) && model.params[i].trainable == trainable)
          for (size_t rank = 0; rank < bytes.size(); ++rank)
            bytes[rank] +=
                shards.rows[i][rank].count() * model.params[i].bytes() / model.params[i].shape[0];
      ASSERT_LE(std::ranges::max(bytes) - std::ranges::min(bytes), 3 * largest);
    }
  });
}

TEST(RowShards, PutParametersOfTheSameBlocksTogether) {
  for_each_case([](const Model& model, const RowShards& shards, const RowShardOptions&) {
    for (const RowUnit& unit : shards.units)
      for (const int param : unit.params)
        for (int block = 0; block < static_cast<int>(model.blocks.size()); ++block) {
          const auto& of_block = model.blocks[static_cast<size_t>(block)];
          ASSERT_EQ(uses(unit, block), std::ranges::find(of_block, param) != of_block.end());
        }
    ASSERT_TRUE(std::ranges::is_sorted(shards.units, std::greater<>(), &RowUnit::blocks));
  });
}

TEST(RowShards, LetALargeParameterTravelInItsOwnMemory) {
  const std::vector<TensorSpec> params = {{"weight", {4096, 64}}, {"bias", {4096}}};
  const RowShards shards = plan_row_shards(params, Blocks{{0, 1}}, 4);
  ASSERT_THAT(shards.units, SizeIs(2));
  EXPECT_TRUE(shards.units[0].is_in_place);
  EXPECT_THAT(shards.units[0].params, ElementsAre(0));
  EXPECT_EQ(shards.units[0].block_elements, 1024 * 64);
  EXPECT_FALSE(shards.units[1].is_in_place);
  EXPECT_EQ(shards.elements_of(3, params), 1024 * 65);
}

TEST(RowShards, CutOddRowsAndPadTheirMessage) {
  const std::vector<TensorSpec> params = {{"weight", {1001, 64}}};
  const RowShards shards = plan_row_shards(params, Blocks{{0}}, 2);
  EXPECT_THAT(shards.rows[0], ElementsAre(RowRange{0, 501}, RowRange{501, 1001}));
  EXPECT_FALSE(shards.units[0].is_in_place);
  EXPECT_EQ(shards.units[0].block_elements, 501 * 64);
}

TEST(RowShards, GiveASmallParameterToTheRankThatHasLeast) {
  const std::vector<TensorSpec> params = {{"a", {40}}, {"b", {30}}, {"c", {20}}};
  const RowShards shards = plan_row_shards(params, Blocks{{0, 1, 2}}, 2);
  EXPECT_THAT(shards.rows[0], ElementsAre(RowRange{0, 40}, RowRange{40, 40}));
  EXPECT_THAT(shards.rows[1], ElementsAre(RowRange{0, 0}, RowRange{0, 30}));
  EXPECT_THAT(shards.rows[2], ElementsAre(RowRange{0, 0}, RowRange{0, 20}));
}

TEST(RowShards, LeaveRanksEmptyWhereThereAreMoreThanRows) {
  const std::vector<TensorSpec> params = {{"weight", {2, 5000}}};
  const RowShards shards = plan_row_shards(params, Blocks{{0}}, 5);
  int64_t owners = 0;
  for (int rank = 0; rank < 5; ++rank) owners += shards.elements_of(rank, params) > 0;
  EXPECT_EQ(owners, 2);
}

TEST(RowShards, AreEqualForEqualInput) {
  for (const Model& model : models())
    EXPECT_EQ(plan_row_shards(model.params, model.blocks, 3).to_json(),
              plan_row_shards(model.params, model.blocks, 3).to_json());
}

// Ranks of several stages have a tied weight beside other parameters.
TEST(RowShards, GiveOutSomeRowsEvenlyWhateverTheOtherParametersAre) {
  for (const std::vector<int64_t>& shape :
       std::vector<std::vector<int64_t>>{{1, 7}, {5, 3}, {37, 11}, {840, 64}, {7, 999, 2}}) {
    const std::vector<TensorSpec> here = {{"tied", shape}, {"other", {51, 11}}},
                                  there = {{"more", {1000, 3}}, {"last", {3}}, {"tied", shape}};
    for (const int ranks : {2, 3, 5}) {
      const RowShards first = plan_row_shards(here, Blocks{{0, 1}}, ranks, {.evenly = {0}}),
                      second = plan_row_shards(there, Blocks{{0}, {1, 2}}, ranks, {.evenly = {2}});
      check(first, here);
      check(second, there);
      EXPECT_EQ(first.rows[0], second.rows[2]);
      for (const RowRange& rows : first.rows[0])
        EXPECT_LE(rows.count(), shape[0] / ranks + 1) << shape[0] << " on " << ranks;
    }
  }
}

TEST(RowShards, RefuseWrongInput) {
  const std::vector<TensorSpec> params = {{"weight", {4}}};
  EXPECT_THAT(
      message_of(ErrorCode::invalid_argument, [&] { plan_row_shards(params, Blocks{{0}}, 0); }),
      HasSubstr("among 0 ranks"));
  EXPECT_THAT(
      message_of(ErrorCode::invalid_argument, [&] { plan_row_shards(params, Blocks{{0, 1}}, 2); }),
      HasSubstr("block 0 names parameter 1 of 1"));
}

TEST(RowShards, CheckFindsDamage) {
  const std::vector<TensorSpec> params = {{"a", {600, 4}}, {"b", {300, 4}}};
  const RowShards good = plan_row_shards(params, Blocks{{0, 1}}, 2);
  check(good, params);
  const auto flaw_of = [&](const std::function<void(RowShards&)>& damage) {
    RowShards bad = good;
    damage(bad);
    return message_of(ErrorCode::internal, [&] { check(bad, params); });
  };
  EXPECT_THAT(flaw_of([](RowShards& s) { s.rows[0][1].from += 1; }), HasSubstr("'a' has rows"));
  EXPECT_THAT(flaw_of([](RowShards& s) { s.rows[1][1].to -= 1; }),
              HasSubstr("'b' has 299 of its 300 rows"));
  EXPECT_THAT(flaw_of([](RowShards& s) { s.units.clear(); }), HasSubstr("travels in 0 units"));
  EXPECT_THAT(flaw_of([](RowShards& s) { s.units[0].dtype = DType::bfloat16; }),
              HasSubstr("unit of another type"));
  EXPECT_THAT(flaw_of([](RowShards& s) { s.units[0].offsets[0][1] = 0; }),
              HasSubstr("overlaps another parameter"));
  EXPECT_THAT(flaw_of([](RowShards& s) { s.units[0].block_elements -= 1; }),
              HasSubstr("does not fit into its unit"));
  EXPECT_THAT(flaw_of([](RowShards& s) { s.units[0].is_in_place = true; }),
              HasSubstr("travels alone"));
  EXPECT_THAT(flaw_of([](RowShards& s) { s.rows[0].clear(); }), HasSubstr("is not divided"));
  EXPECT_THAT(flaw_of([](RowShards& s) { s.rows.pop_back(); }), HasSubstr("1 parameters"));
}

}  // namespace
}  // namespace trireme::plan::row_shards_test
