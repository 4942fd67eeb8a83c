#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/plan/collective_plan.h>
#include <algorithm>
#include <fstream>
#include <iterator>

namespace trireme::plan {
namespace {

using testing::HasSubstr;

TEST(CollectivePicture, ShowsARingFillRoundByRound) {
  EXPECT_EQ(plan_collective(Collective::all_reduce, Algorithm::ring, 3).describe(),
            "all_reduce by ring: 3 ranks, 3 chunks, 4 rounds, 1.333 S received by a rank (S: the tensor)\n"
            "\n"
            "  .-> 0 -> 1 -> 2 -.\n"
            "  '----------------'\n"
            "\n"
            "  what each rank holds, a character a chunk: how many ranks are in the sum (+: more than 9), # all\n"
            "  round  bytes     rank 0   rank 1   rank 2   rank 0 takes\n"
            "  start            111      111      111\n"
            "  0      0.3333 S  121      112      211      chunk 1 = sum of ranks 2+0\n"
            "  1      0.3333 S  #21      1#2      21#      chunk 0 = sum of ranks 2+0\n"
            "  2      0.3333 S  #2#      ##2      2##      chunk 2 from rank 2\n"
            "  3      0.3333 S  ###      ###      ###      chunk 1 from rank 2\n");
}

TEST(CollectivePicture, ShowsAChainThatStartsAtTheRoot) {
  EXPECT_EQ(plan_collective(Collective::broadcast, Algorithm::ring, 3, 1).describe(),
            "broadcast by ring: 3 ranks, 3 chunks, 4 rounds, 1 S received by a rank (S: the tensor)\n"
            "\n"
            "  1 -> 2 -> 0\n"
            "\n"
            "  what each rank holds, a character a chunk: . not there yet, # there\n"
            "  round  bytes     rank 0   rank 1   rank 2   rank 2 takes\n"
            "  start            ...      ###      ...\n"
            "  0      0.3333 S  ...      ###      #..      chunk 0 from rank 1\n"
            "  1      0.3333 S  #..      ###      ##.      chunk 1 from rank 1\n"
            "  2      0.3333 S  ##.      ###      ###      chunk 2 from rank 1\n"
            "  3      0.3333 S  ###      ###      ###      nothing\n");
}

TEST(CollectivePicture, SaysThatOneRankHasNothingToExchange) {
  EXPECT_EQ(plan_collective(Collective::all_reduce, Algorithm::ring, 1).describe(), "all_reduce by ring: 1 rank, nothing to exchange\n");
}

TEST(CollectivePicture, StaysReadableForManyRanks) {
  const std::string text = plan_collective(Collective::all_reduce, Algorithm::ring, 100).describe();
  EXPECT_LT(std::count(text.begin(), text.end(), '\n'), 45);
  EXPECT_THAT(text, HasSubstr("... -> 99 -."));
  EXPECT_THAT(text, HasSubstr("\n  ...\n  197"));
}

TEST(CollectivePicture, InTheDocumentationIsWhatThePlanPrints) {
  std::ifstream file(std::string(TRIREME_SOURCE_DIR) + "/docs/collectives.md");
  const std::string document(std::istreambuf_iterator<char>(file), {});
  for (const Algorithm algorithm : {Algorithm::naive, Algorithm::direct, Algorithm::ring}) {
    EXPECT_THAT(document, HasSubstr("```\n" + plan_collective(Collective::all_reduce, algorithm, 4).describe() + "```\n"));
  }
  EXPECT_THAT(document, HasSubstr("```\n" + plan_collective(Collective::broadcast, Algorithm::ring, 4).describe() + "```\n"));
}

}  // namespace
}  // namespace trireme::plan
