#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/plan/compression_plan.h>
#include <trireme/plan/kept_values.h>
#include <trireme/plan/low_rank_layout.h>
#include <trireme/plan/quantised_layout.h>
#include <algorithm>
#include <limits>

namespace trireme::plan::compression_plan_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

BlockFormat format_of(const std::string& compression) {
  return block_format_of(compression).value();
}

std::vector<size_t> parameters_of(const std::vector<LowRankLayout::Matrix>& matrices) {
  std::vector<size_t> parameters;
  for (const auto& matrix : matrices) parameters.push_back(matrix.parameter);
  return parameters;
}

TEST(BlockFormat, BelongsToTheCompressionsThatEncodeNumberByNumber) {
  EXPECT_EQ(format_of("bf16").block, 1);
  EXPECT_EQ(format_of("bf16").block_bytes, 2);
  EXPECT_EQ(format_of("fp16").block, 1024);
  EXPECT_EQ(format_of("fp16").block_bytes, 4 + 2048);
  EXPECT_EQ(format_of("int8").block, 256);
  EXPECT_EQ(format_of("int8").block_bytes, 4 + 256);
  for (const char* name : {"none", "topk", "powersgd", "mine", ""})
    EXPECT_FALSE(block_format_of(name)) << name;
}

TEST(QuantisedLayout, OfNothingHasNoPieces) {
  const QuantisedLayout layout = lay_out_quantised(0, 4, format_of("int8"));
  EXPECT_EQ(layout.chunk, 0);
  EXPECT_EQ(layout.pieces(), 0);
  EXPECT_EQ(layout.bytes_of(layout.chunk), 0);
}

TEST(QuantisedLayout, GivesEveryRankAWholeBlockIfThereAreFewerElementsThanRanks) {
  EXPECT_EQ(lay_out_quantised(3, 4, format_of("bf16")).chunk, 1);
  const QuantisedLayout layout = lay_out_quantised(3, 4, format_of("int8"));
  EXPECT_EQ(layout.chunk, 256);
  EXPECT_EQ(layout.pieces(), 1);
  EXPECT_EQ(layout.bytes_of(layout.chunk), 260);
}

TEST(QuantisedLayout, RoundsChunksUpToWholeBlocks) {
  EXPECT_EQ(lay_out_quantised(512, 2, format_of("int8")).chunk, 256);
  EXPECT_EQ(lay_out_quantised(513, 2, format_of("int8")).chunk, 512);
  EXPECT_EQ(lay_out_quantised(1025, 2, format_of("int8")).chunk, 768);
  EXPECT_EQ(lay_out_quantised(1025, 1, format_of("fp16")).chunk, 2048);
  EXPECT_EQ(lay_out_quantised(7, 3, format_of("bf16")).chunk, 3);
}

TEST(QuantisedLayout, CutsLongChunksIntoPieces) {
  constexpr int64_t kPiece = 128 << 10;
  EXPECT_EQ(lay_out_quantised(kPiece, 1, format_of("bf16")).pieces(), 1);
  EXPECT_EQ(lay_out_quantised(kPiece + 1, 1, format_of("bf16")).pieces(), 2);
  EXPECT_EQ(lay_out_quantised(5 * kPiece, 2, format_of("int8")).pieces(), 3);
}

TEST(QuantisedLayout, KeepsABlockThatIsLongerThanAPieceWhole) {
  const QuantisedLayout layout = lay_out_quantised(500000, 2, {200000, 100});
  EXPECT_EQ(layout.chunk, 400000);
  EXPECT_EQ(layout.piece, 200000);
  EXPECT_EQ(layout.pieces(), 2);
  EXPECT_EQ(layout.bytes_of(layout.piece), 100);
}

TEST(QuantisedLayout, CoversTheBucketWithWholeBlocksAndLessThanOneMoreEach) {
  for (const char* name : {"bf16", "fp16", "int8"}) {
    const BlockFormat format = format_of(name);
    for (const int64_t elements : {0, 1, 255, 256, 257, 1023, 1024, 1025, 300000, 1 << 20}) {
      for (const int ranks : {1, 2, 3, 4, 7}) {
        const QuantisedLayout layout = lay_out_quantised(elements, ranks, format);
        EXPECT_GE(layout.chunk * ranks, elements) << name << " " << elements << " " << ranks;
        EXPECT_LT(layout.chunk * ranks, elements + format.block * ranks);
        EXPECT_EQ(layout.chunk % format.block, 0);
        EXPECT_EQ(layout.piece % format.block, 0);
        EXPECT_GT(layout.piece, 0);
        int64_t pieces = 0, bytes = 0;
        for (int64_t start = 0; start < layout.chunk; start += layout.piece, ++pieces)
          bytes += layout.bytes_of(std::min(layout.piece, layout.chunk - start));
        EXPECT_EQ(layout.pieces(), pieces);
        EXPECT_EQ(layout.bytes_of(layout.chunk), bytes);
      }
    }
  }
}

TEST(KeptValues, AreTheFractionRoundedUp) {
  EXPECT_EQ(kept_values(100, 0.01), 1);
  EXPECT_EQ(kept_values(101, 0.01), 2);
  EXPECT_EQ(kept_values(7, 0.5), 4);
  EXPECT_EQ(kept_values(8, 0.5), 4);
}

TEST(KeptValues, AreAtLeastOneOfSomethingAndNoneOfNothing) {
  EXPECT_EQ(kept_values(1, 0.01), 1);
  EXPECT_EQ(kept_values(1000, 1e-12), 1);
  EXPECT_EQ(kept_values(1000, 0), 1);
  EXPECT_EQ(kept_values(0, 0.5), 0);
  EXPECT_EQ(kept_values(0, 1), 0);
}

TEST(KeptValues, AreAtMostAll) {
  EXPECT_EQ(kept_values(1, 1), 1);
  EXPECT_EQ(kept_values(1000, 1), 1000);
  EXPECT_EQ(kept_values(1000, 1.5), 1000);
  EXPECT_EQ(kept_values(1000, 0.99999), 1000);
}

TEST(KeptValues, GrowWithTheElementsAndTheRatio) {
  const std::vector<double> ratios = {1e-6, 0.01, 0.1, 1.0 / 3, 0.5, 0.9, 1};
  for (int64_t elements = 1; elements < 300; ++elements) {
    for (size_t r = 0; r < ratios.size(); ++r) {
      const int64_t kept = kept_values(elements, ratios[r]);
      EXPECT_GE(kept, 1);
      EXPECT_LE(kept, elements);
      EXPECT_GE(kept, kept_values(elements - 1, ratios[r]));
      if (r > 0) {
        EXPECT_GE(kept, kept_values(elements, ratios[r - 1]));
      }
    }
  }
}

TEST(LowRankLayout, SeesAParameterAsItsFirstDimensionByAllOthers) {
  const std::vector<TensorSpec> params = {{"conv", {16, 3, 3, 3}}};
  const LowRankLayout layout = lay_out_low_rank(params, 2);
  ASSERT_EQ(layout.matrices.size(), 1U);
  EXPECT_EQ(layout.matrices[0].rows, 16);
  EXPECT_EQ(layout.matrices[0].columns, 27);
  EXPECT_EQ(layout.matrices[0].rank, 2);
  EXPECT_EQ(layout.p_elements, 2 * 16);
  EXPECT_EQ(layout.q_elements, 2 * 27);
}

TEST(LowRankLayout, LetsVectorsAndNumbersTravelWhole) {
  const std::vector<TensorSpec> params = {{"bias", {1000}}, {"scale", {}}};
  const LowRankLayout layout = lay_out_low_rank(params, 1);
  EXPECT_THAT(layout.matrices, IsEmpty());
  ASSERT_EQ(layout.whole.size(), 2U);
  EXPECT_EQ(layout.whole[1].place, 1000);
  EXPECT_EQ(layout.p_elements, 1001);
  EXPECT_EQ(layout.q_elements, 0);
}

TEST(LowRankLayout, LetsAMatrixTravelWholeIfItsFactorsAreNotSmaller) {
  const std::vector<TensorSpec> params = {
      {"equal", {4, 4}}, {"smaller", {4, 5}}, {"row", {1, 100}}, {"column", {100, 1}}};
  const LowRankLayout two = lay_out_low_rank(params, 2);
  EXPECT_THAT(parameters_of(two.matrices), ElementsAre(1)) << "2 (4 + 4) = 16, 2 (4 + 5) < 20";
  EXPECT_EQ(two.whole.size(), 3U);
  const LowRankLayout three = lay_out_low_rank(params, 3);
  EXPECT_THAT(three.matrices, IsEmpty());
  EXPECT_EQ(three.p_elements, 16 + 20 + 100 + 100);
}

TEST(LowRankLayout, KeepsNoMoreColumnsThanAMatrixHas) {
  const std::vector<TensorSpec> params = {{"w", {3, 1000}}, {"v", {1000, 3}}};
  EXPECT_THAT(lay_out_low_rank(params, 3).matrices, IsEmpty()) << "3 x 1003 is more than 3000";
  EXPECT_THAT(lay_out_low_rank(params, std::numeric_limits<int>::max()).matrices, IsEmpty());
  EXPECT_EQ(lay_out_low_rank(params, 2).matrices.size(), 2U);
}

TEST(LowRankLayout, LetsEmptyMatricesTravelWhole) {
  const std::vector<TensorSpec> params = {{"no rows", {0, 5}}, {"no columns", {5, 0}}};
  const LowRankLayout layout = lay_out_low_rank(params, 2);
  EXPECT_THAT(layout.matrices, IsEmpty());
  EXPECT_EQ(layout.whole.size(), 2U);
  EXPECT_EQ(layout.p_elements, 0);
  EXPECT_EQ(layout.q_elements, 0);
}

TEST(LowRankLayout, PutsFactorsBehindEachOtherAndWholeParametersBehindThem) {
  const std::vector<TensorSpec> params = {
      {"b1", {100}}, {"w1", {8, 9}}, {"b2", {7}}, {"w2", {16, 27}}};
  const LowRankLayout layout = lay_out_low_rank(params, 2);
  ASSERT_THAT(parameters_of(layout.matrices), ElementsAre(1, 3));
  EXPECT_EQ(layout.matrices[0].p, 0);
  EXPECT_EQ(layout.matrices[0].q, 0);
  EXPECT_EQ(layout.matrices[1].p, 2 * 8);
  EXPECT_EQ(layout.matrices[1].q, 2 * 9);
  ASSERT_EQ(layout.whole.size(), 2U);
  EXPECT_EQ(layout.whole[0].parameter, 0U);
  EXPECT_EQ(layout.whole[0].place, 2 * (8 + 16));
  EXPECT_EQ(layout.whole[1].parameter, 2U);
  EXPECT_EQ(layout.whole[1].place, 2 * (8 + 16) + 100);
  EXPECT_EQ(layout.p_elements, 2 * (8 + 16) + 107);
  EXPECT_EQ(layout.q_elements, 2 * (9 + 27));
}

TEST(LowRankLayout, NeverSendsMoreThanTheParametersHave) {
  for (int64_t rows = 0; rows <= 12; ++rows) {
    for (int64_t columns = 0; columns <= 12; ++columns) {
      const std::vector<TensorSpec> params = {{"w", {rows, columns}}, {"b", {rows}}};
      for (int rank = 1; rank <= 5; ++rank) {
        const LowRankLayout layout = lay_out_low_rank(params, rank);
        EXPECT_LE(layout.p_elements + layout.q_elements, rows * columns + rows)
            << rows << " x " << columns << " of rank " << rank;
        EXPECT_EQ(layout.matrices.size() + layout.whole.size(), 2U);
      }
    }
  }
}

}  // namespace
}  // namespace trireme::plan::compression_plan_test
