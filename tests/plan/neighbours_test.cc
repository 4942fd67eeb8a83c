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
  for (const auto& hosts : {std::vector{0, 0, 0, 1}, {0, 1, 1, 1}, {0, 0, 1}}) {
    EXPECT_GT(distance(hosts), 0);
    EXPECT_LT(distance(hosts), std::ssize(hosts));
  }
}

TEST(Neighbours, AreInOtherUnits) {
  EXPECT_EQ(distance_of_neighbours(std::vector{0, 0, 0, 0}, 2), 2);
  EXPECT_EQ(distance_of_neighbours(std::vector{0, 0, 1, 1}, 2), 2);
  EXPECT_EQ(distance_of_neighbours(std::vector{0, 0, 0, 1, 1, 1}, 3), 3);
  // Each host has two units: the neighbour is in another unit, and on another host.
  EXPECT_EQ(distance_of_neighbours(std::vector{0, 0, 0, 0, 1, 1, 1, 1}, 2), 4);
  // All ranks are one unit.
  EXPECT_EQ(distance_of_neighbours(std::vector{0, 0, 0}, 3), 1);
}

}  // namespace
}  // namespace trireme::plan::neighbours_test
