#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/plan/slice_moves.h>
#include <map>
#include <random>
#include <string>
#include <tuple>

#include "../base/expect_error.h"

namespace trireme::plan::slice_moves_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Placed = std::vector<PlacedSlice>;

TensorSlice rows(const std::string& name, int64_t from, int64_t size) {
  return {name, {8, 3}, {from, 0}, {size, 3}};
}

// (from, to, first row, rows)
std::vector<std::tuple<size_t, size_t, int64_t, int64_t>> moves_of(const Placed& wanted,
                                                                   const Placed& held,
                                                                   Prefer prefer) {
  std::vector<std::tuple<size_t, size_t, int64_t, int64_t>> all;
  for (const SliceMove& move : plan_moves(wanted, held, prefer))
    all.emplace_back(move.from, move.to, move.box.from[0], move.box.sizes[0]);
  return all;
}

TEST(SliceMoves, ARankKeepsWhatItHasItself) {
  const Placed held = {{0, rows("w", 0, 8)}, {2, rows("w", 0, 8)}};
  const Placed wanted = {{1, rows("w", 0, 8)}, {2, rows("w", 0, 8)}};
  EXPECT_THAT(moves_of(wanted, held, Prefer::own),
              ElementsAre(std::tuple(0, 0, 0, 8), std::tuple(1, 1, 0, 8)));
  EXPECT_THAT(moves_of(wanted, held, Prefer::first),
              ElementsAre(std::tuple(0, 0, 0, 8), std::tuple(0, 1, 0, 8)));
}

TEST(SliceMoves, ASliceComesFromAllThatHaveAPartOfIt) {
  const Placed held = {{0, rows("w", 0, 3)}, {1, rows("w", 3, 3)}, {2, rows("w", 6, 2)}};
  EXPECT_THAT(moves_of({{1, rows("w", 1, 6)}}, held, Prefer::own),
              ElementsAre(std::tuple(1, 0, 3, 3), std::tuple(0, 0, 1, 2), std::tuple(2, 0, 6, 1)));
  EXPECT_THAT(moves_of({{0, rows("w", 4, 0)}}, held, Prefer::own), IsEmpty());
}

TEST(SliceMoves, NamesASliceThatNoRankHas) {
  const Placed held = {{0, rows("w", 0, 4)}, {1, rows("v", 0, 8)}};
  EXPECT_THAT(message_of(ErrorCode::corrupt,
                         [&] { plan_moves(Placed{{1, rows("w", 2, 6)}}, held, Prefer::own); }),
              HasSubstr("w[4:8, 0:3] of [8, 3]"));
}

// Any two ways to cut two tensors among some ranks.
TEST(SliceMoves, EachElementArrivesOnce) {
  std::mt19937 random(3);
  const auto below = [&](int64_t bound) { return static_cast<int64_t>(random() % bound); };
  const auto cut = [&](const std::string& name, int ranks, Placed& all) {
    int64_t from = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const int64_t size = rank + 1 < ranks ? below(8 - from + 1) : 8 - from;
      all.push_back({rank, rows(name, from, size)});
      from += size;
    }
  };
  for (int ranks = 1; ranks <= 16; ++ranks) {
    Placed held, wanted;
    for (const char* const name : {"v", "w"}) {
      cut(name, ranks, held);
      cut(name, 1 + static_cast<int>(below(16)), wanted);
    }
    std::map<std::tuple<size_t, int64_t>, int> arrived;  // By wanted slice and row.
    for (const SliceMove& move : plan_moves(wanted, held, Prefer::own)) {
      ASSERT_EQ(move.box.tensor, held[move.from].slice.tensor);
      for (int64_t row = move.box.from[0]; row < move.box.from[0] + move.box.sizes[0]; ++row) {
        const TensorSlice& source = held[move.from].slice;
        EXPECT_TRUE(source.from[0] <= row && row < source.from[0] + source.sizes[0]);
        ++arrived[{move.to, row}];
      }
    }
    size_t expected = 0;
    for (size_t i = 0; i < wanted.size(); ++i)
      for (int64_t row = 0; row < wanted[i].slice.sizes[0]; ++row, ++expected)
        EXPECT_EQ((arrived[{i, wanted[i].slice.from[0] + row}]), 1);
    EXPECT_EQ(arrived.size(), expected);
  }
}

}  // namespace
}  // namespace trireme::plan::slice_moves_test
