#include <gtest/gtest.h>
#include <trireme/plan/neighbours.h>
#include <vector>

namespace trireme::plan::neighbours_test {
namespace {

int distance(const std::vector<int>& hosts) { return distance_of_neighbours(hosts); }

TEST(Neighbours, AreNextToEachOtherOnOneHost) {
  EXPECT_EQ(distance({0}), 0);
  EXPECT_EQ(distance({0, 0}), 1);
  EXPECT_EQ(distance({0, 0, 0, 0}), 1);
}

TEST(Neighbours, AreOnOtherHostsIfTheseAreAlike) {
  for (int hosts = 2; hosts <= 4; ++hosts)
    for (int ranks = 1; ranks <= 4; ++ranks) {
      std::vector<int> all;
      for (int rank = 0; rank < hosts * ranks; ++rank) all.push_back(rank / ranks);
      const int away = distance(all);
      for (size_t rank = 0; rank < all.size(); ++rank)
        EXPECT_NE(all[rank], all[(rank + static_cast<size_t>(away)) % all.size()])
            << hosts << " hosts of " << ranks;
    }
}

TEST(Neighbours, AreOtherRanksEvenIfHostsDiffer) {
  EXPECT_EQ(distance({0, 0, 0, 1}), 3);
  EXPECT_EQ(distance({0, 1, 1, 1}), 3);
  EXPECT_EQ(distance({0, 0, 1}), 2);
}

}  // namespace
}  // namespace trireme::plan::neighbours_test
