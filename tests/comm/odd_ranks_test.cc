#include <trireme/comm/odd_ranks.h>

#include <gtest/gtest.h>

#include <numeric>

namespace trireme::odd_ranks_test {
namespace {

std::string sentence_of(const std::vector<int64_t>& values) {
  std::vector<int> ranks(values.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  const OddRanks found = find_odd_ranks(ranks, values);
  return found ? found.sentence("the rate") : "";
}

TEST(OddRanks, AreNoneIfAllAreAlike) {
  EXPECT_EQ(sentence_of({4}), "");
  EXPECT_EQ(sentence_of({4, 4, 4}), "");
}

TEST(OddRanks, AreTheMinorityWhereverItIs) {
  EXPECT_EQ(sentence_of({4, 4, 5}), "the rate of rank 2 is not that of ranks 0 and 1");
  EXPECT_EQ(sentence_of({5, 4, 4}), "the rate of rank 0 is not that of ranks 1 and 2");
  EXPECT_EQ(sentence_of({4, 5, 4, 6, 4}),
            "the rate of ranks 1 and 3 is not that of ranks 0, 2 and 4");
}

TEST(OddRanks, MayBeEitherWithoutAMajority) {
  EXPECT_EQ(sentence_of({4, 5}),
            "the rate of rank 1 is not that of rank 0 (nothing tells which of them is right)");
  EXPECT_EQ(sentence_of({4, 4, 5, 5}),
            "the rate of ranks 2 and 3 is not that of ranks 0 and 1 (nothing tells which of them "
            "is right)");
  EXPECT_EQ(sentence_of({4, 5, 6}),
            "the rate of rank 2 is not that of ranks 0 and 1 (nothing tells which of them is "
            "right)");
}

TEST(OddRanks, AreAmongTheRanksThatTookPart) {
  const std::vector<int> ranks = {0, 3, 5};
  const std::vector<int64_t> values = {7, 7, 8};
  const OddRanks found = find_odd_ranks(ranks, values);
  EXPECT_EQ(found.odd, std::vector<int>({5}));
  EXPECT_EQ(found.others, std::vector<int>({0, 3}));
}

}  // namespace
}  // namespace trireme::odd_ranks_test
