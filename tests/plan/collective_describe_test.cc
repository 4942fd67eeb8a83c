#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/plan/collective_plan.h>
#include <algorithm>
#include <fstream>
#include <iterator>

namespace trireme::plan::collective_describe_test {
namespace {

using testing::HasSubstr;

TEST(CollectivePicture, ShowsARingFillRoundByRound) {
  EXPECT_EQ(plan_collective(Collective::all_reduce, Algorithm::ring, 3).describe(),
            "all_reduce by ring: 3 ranks, 3 chunks, 4 rounds, 1.333 S received by a rank (S: the "
            "tensor)\n"
            "\n"
            "  .-> 0 -> 1 -> 2 -.\n"
            "  '----------------'\n"
            "\n"
            "  what each rank holds, a character a chunk: how many ranks are in the sum (+: more "
            "than 9), # all\n"
            "  round  bytes     rank 0   rank 1   rank 2   rank 0 takes\n"
            "  start            111      111      111\n"
            "  0      0.3333 S  121      112      211      chunk 1 = sum of ranks 2+0\n"
            "  1      0.3333 S  #21      1#2      21#      chunk 0 = sum of ranks 2+0\n"
            "  2      0.3333 S  #2#      ##2      2##      chunk 2 from rank 2\n"
            "  3      0.3333 S  ###      ###      ###      chunk 1 from rank 2\n");
}

TEST(CollectivePicture, ShowsAChainThatStartsAtTheRoot) {
  EXPECT_EQ(
      plan_collective(Collective::broadcast, Algorithm::ring, 3, 1).describe(),
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
  EXPECT_EQ(plan_collective(Collective::all_reduce, Algorithm::ring, 1).describe(),
            "all_reduce by ring: 1 rank, nothing to exchange\n");
}

TEST(CollectivePicture, StaysReadableForManyRanks) {
  const std::string text =
      plan_collective(Collective::all_reduce, Algorithm::ring, 100).describe();
  EXPECT_LT(std::count(text.begin(), text.end(), '\n'), 45);
  EXPECT_THAT(text, HasSubstr("... -> 99 -."));
  EXPECT_THAT(text, HasSubstr("\n  ...\n  197"));
}

TEST(CollectivePicture, ShowsPartnersRoundByRound) {
  EXPECT_EQ(plan_collective(Collective::all_reduce, Algorithm::recursive_doubling, 3).describe(),
            "all_reduce by recursive_doubling: 3 ranks, 1 chunk, 3 rounds, 2 S received by a rank "
            "(S: the tensor)\n"
            "\n"
            "  round 0  0 <-- 1\n"
            "  round 1  0 <-> 2\n"
            "  round 2  0 --> 1\n"
            "\n"
            "  what each rank holds, a character a chunk: how many ranks are in the sum (+: more "
            "than 9), # all\n"
            "  round  bytes     rank 0   rank 1   rank 2   rank 0 takes\n"
            "  start            1        1        1\n"
            "  0      1 S       2        1        1        chunk 0 = sum of ranks 0+1\n"
            "  1      1 S       #        1        #        chunk 0 = sum of ranks 0+2\n"
            "  2      1 S       #        #        #        nothing\n");
}

TEST(CollectivePicture, ShowsHostsWithTheirLeaders) {
  EXPECT_THAT(
      plan_collective(Collective::broadcast, Algorithm::hierarchical, 5, 3, {0, 0, 1, 1, 1})
          .describe(),
      HasSubstr("  host 1: [3] 2 4\n"
                "  host 0: [0] 1\n"
                "\n"
                "  round 0  0 <-- 3\n"
                "  round 1  0 --> 1   2 <-- 3   3 --> 4\n"));
}

TEST(CollectivePicture, IsInTheDocumentationAsThePlanPrintsIt) {
  std::ifstream file(std::string(TRIREME_SOURCE_DIR) + "/docs/collectives.md");
  const std::string document(std::istreambuf_iterator<char>(file), {});
  const auto shows = [&](Collective collective, Algorithm algorithm, int n,
                         const std::vector<int>& hosts) {
    const std::string picture = plan_collective(collective, algorithm, n, 0, hosts).describe();
    EXPECT_NE(document.find("```\n" + picture + "```\n"), std::string::npos) << picture;
  };
  for (const Algorithm algorithm : algorithms_of(Collective::all_reduce)) {
    if (algorithm != Algorithm::hierarchical) shows(Collective::all_reduce, algorithm, 4, {});
  }
  shows(Collective::all_reduce, Algorithm::hierarchical, 5, {0, 0, 0, 1, 1});
  shows(Collective::all_reduce, Algorithm::recursive_doubling, 5, {});
  shows(Collective::broadcast, Algorithm::ring, 4, {});
  shows(Collective::broadcast, Algorithm::tree, 8, {});
}

}  // namespace
}  // namespace trireme::plan::collective_describe_test
