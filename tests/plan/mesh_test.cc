#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/plan/mesh.h>
#include <functional>

#include "../base/expect_error.h"

namespace trireme::plan::mesh_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

Mesh two_by_three_by_two() { return Mesh({{"data", 2}, {"stage", 3}, {"tensor", 2}}); }

// Visits every way to write `ranks` as a product of up to `axes` sizes.
void for_each_grid(int ranks, int axes, std::vector<MeshAxis> so_far,
                   const std::function<void(const Mesh&)>& visit) {
  if (axes == 1) {
    so_far.push_back({"axis" + std::to_string(so_far.size()), ranks});
    return visit(Mesh(so_far));
  }
  for (int size = 1; size <= ranks; ++size) {
    if (ranks % size != 0) continue;
    auto next = so_far;
    next.push_back({"axis" + std::to_string(so_far.size()), size});
    for_each_grid(ranks / size, axes - 1, next, visit);
  }
}

TEST(Mesh, GivesEveryCoordinateToOneRankForOneToSixteenRanks) {
  for (int ranks = 1; ranks <= 16; ++ranks) {
    for (int axes = 1; axes <= 4; ++axes) {
      for_each_grid(ranks, axes, {}, [&](const Mesh& mesh) {
        EXPECT_EQ(mesh.world_size(), ranks);
        EXPECT_NO_THROW(check(mesh)) << mesh.describe();
      });
    }
  }
}

TEST(Mesh, LetsTheLastAxisVaryFastest) {
  const Mesh mesh = two_by_three_by_two();
  EXPECT_THAT(mesh.coordinates_of(0), ElementsAre(0, 0, 0));
  EXPECT_THAT(mesh.coordinates_of(1), ElementsAre(0, 0, 1));
  EXPECT_THAT(mesh.coordinates_of(7), ElementsAre(1, 0, 1));
  EXPECT_EQ(mesh.rank_at({1, 2, 1}), 11);
}

TEST(Mesh, FindsThePeersThatDifferOnOneAxisOnly) {
  const Mesh mesh = two_by_three_by_two();
  EXPECT_THAT(mesh.peers_along("data", 7), ElementsAre(1, 7));
  EXPECT_THAT(mesh.peers_along("stage", 7), ElementsAre(7, 9, 11));
  EXPECT_THAT(mesh.peers_along("tensor", 7), ElementsAre(6, 7));
}

TEST(Mesh, PutsEachRankIntoOneGroupOfEachAxis) {
  for (int ranks = 1; ranks <= 16; ++ranks)
    for_each_grid(ranks, 3, {}, [&](const Mesh& mesh) {
      for (const MeshAxis& axis : mesh.axes()) {
        std::vector<int> times(static_cast<size_t>(ranks), 0);
        for (const std::vector<int>& group : mesh.groups_along(axis.name)) {
          EXPECT_EQ(static_cast<int>(group.size()), axis.size);
          for (const int rank : group) {
            EXPECT_EQ(mesh.peers_along(axis.name, rank), group);
            ++times[static_cast<size_t>(rank)];
          }
        }
        EXPECT_THAT(times, testing::Each(1));
      }
    });
  EXPECT_THAT(two_by_three_by_two().groups_along("stage"),
              ElementsAre(ElementsAre(0, 2, 4), ElementsAre(1, 3, 5), ElementsAre(6, 8, 10),
                          ElementsAre(7, 9, 11)));
}

TEST(Mesh, RefusesAxesThatMakeNoGridByName) {
  const auto mesh = [](std::vector<MeshAxis> axes) { return [axes] { Mesh{axes}; }; };
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, mesh({})), HasSubstr("at least one axis"));
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, mesh({{"data", 2}, {"stage", 0}})),
              AllOf(HasSubstr("'stage'"), HasSubstr("size 0")));
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, mesh({{"data", 2}, {"data", 2}})),
              HasSubstr("'data' is given twice"));
  EXPECT_THAT(
      message_of(ErrorCode::invalid_argument, mesh({{"data", 1 << 20}, {"stage", 1 << 20}})),
      HasSubstr("'stage'"));
}

TEST(Mesh, RefusesRanksAndCoordinatesOutsideTheGrid) {
  const Mesh mesh = two_by_three_by_two();
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { mesh.coordinates_of(12); }),
              HasSubstr("rank 12"));
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { mesh.coordinates_of(-1); }),
              HasSubstr("rank -1"));
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { mesh.rank_at({0, 3, 0}); }),
              HasSubstr("'stage'"));
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { mesh.rank_at({0, 0}); }),
              HasSubstr("2 coordinates"));
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { mesh.peers_along("shard", 0); }),
              AllOf(HasSubstr("'shard'"), HasSubstr("data, stage, tensor")));
}

TEST(Mesh, DrawsItsGrid) {
  EXPECT_EQ(two_by_three_by_two().describe(),
            "mesh of 12 ranks: data 2 x stage 3 x tensor 2\n"
            "  data  stage  | tensor   0   1\n"
            "     0      0  |          0   1\n"
            "     0      1  |          2   3\n"
            "     0      2  |          4   5\n"
            "     1      0  |          6   7\n"
            "     1      1  |          8   9\n"
            "     1      2  |         10  11\n");
}

TEST(Mesh, DrawsALargeGridInFewLines) {
  const std::string text = Mesh({{"data", 1000}, {"tensor", 64}}).describe();
  EXPECT_LT(std::count(text.begin(), text.end(), '\n'), 40);
  EXPECT_THAT(text, HasSubstr("968 more lines"));
}

TEST(Mesh, GivesItsAxesAsJson) {
  EXPECT_EQ(Mesh({{"data", 2}, {"stage", 3}}).to_json().dump(),
            R"({"world_size":6,"axes":[{"name":"data","size":2},{"name":"stage","size":3}]})");
}

}  // namespace
}  // namespace trireme::plan::mesh_test
