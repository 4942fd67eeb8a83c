#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/plan/slice_plan.h>
#include <numeric>
#include <random>

#include "../base/expect_error.h"

namespace trireme::plan::slice_plan_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Slices = std::vector<TensorSlice>;

TensorSlice rows(int64_t from, int64_t size) { return {"w", {8, 6}, {from, 0}, {size, 6}}; }
TensorSlice columns(int64_t from, int64_t size) { return {"w", {8, 6}, {0, from}, {8, size}}; }

TEST(SlicePlan, IntersectsBoxesOfOneTensor) {
  EXPECT_EQ(intersect(rows(0, 4), columns(3, 3)), (TensorSlice{"w", {8, 6}, {0, 3}, {4, 3}}));
  EXPECT_FALSE(intersect(rows(0, 4), rows(4, 4)));
  EXPECT_FALSE(intersect(rows(0, 4), rows(2, 0)));
  EXPECT_FALSE(intersect(rows(0, 4), TensorSlice::whole("v", {8, 6})));
  EXPECT_TRUE(intersect(TensorSlice::whole("step", {}), TensorSlice::whole("step", {})));
}

TEST(SlicePlan, RunsAreAsLongAsBothMemoriesAllow) {
  const TensorSlice whole = TensorSlice::whole("w", {8, 6});
  EXPECT_THAT(runs_of(rows(2, 3), whole, rows(2, 3)), ElementsAre(SliceRun{12, 0, 18}));
  EXPECT_THAT(runs_of(rows(2, 3), rows(1, 7), whole), ElementsAre(SliceRun{6, 12, 18}));
  const TensorSlice corner{"w", {8, 6}, {6, 4}, {2, 2}};
  EXPECT_THAT(runs_of(corner, whole, columns(4, 2)),
              ElementsAre(SliceRun{40, 12, 2}, SliceRun{46, 14, 2}));
  EXPECT_THAT(runs_of(TensorSlice::whole("step", {}), TensorSlice::whole("step", {}),
                      TensorSlice::whole("step", {})),
              ElementsAre(SliceRun{0, 0, 1}));
  EXPECT_THAT(runs_of(rows(3, 0), whole, whole), IsEmpty());
}

TEST(SlicePlan, NamesTheElementsThatNoSliceHas) {
  EXPECT_THAT(message_of(ErrorCode::corrupt,
                         [] { plan_reads(Slices{rows(1, 6)}, Slices{rows(0, 3), rows(5, 3)}); }),
              HasSubstr("no slice holds w[3:5, 0:6] of [8, 6]"));
  EXPECT_THAT(message_of(ErrorCode::corrupt, [] { plan_reads(Slices{rows(1, 6)}, Slices{}); }),
              HasSubstr("w[1:7, 0:6] of [8, 6]"));
  EXPECT_THAT(plan_reads(Slices{rows(1, 0)}, Slices{}), ElementsAre(IsEmpty()));
}

TEST(SlicePlan, RefusesAnotherShapeByBoth) {
  EXPECT_THAT(
      message_of(ErrorCode::invalid_argument,
                 [] { plan_reads(Slices{rows(0, 4)}, Slices{TensorSlice::whole("w", {6, 8})}); }),
      AllOf(HasSubstr("w[0:4, 0:6] of [8, 6]"), HasSubstr("[6, 8]")));
}

Cover cover_of(const Slices& slices) {
  std::vector<std::string> holders;
  for (size_t i = 0; i < slices.size(); ++i) holders.push_back("rank " + std::to_string(i));
  return check_cover(slices, holders);
}

TEST(SlicePlan, ACoverMayHaveReplicasAndEmptySlices) {
  const Cover cover =
      cover_of({rows(0, 3), rows(3, 5), rows(0, 3), rows(3, 0), TensorSlice::whole("v", {2})});
  EXPECT_EQ(cover.flaw, "");
  EXPECT_THAT(cover.first, ElementsAre(0, 1, 0, 3, 4));
  EXPECT_EQ(cover_of({TensorSlice::whole("step", {}), TensorSlice::whole("step", {})}).flaw, "");
  EXPECT_EQ(cover_of({TensorSlice::whole("none", {3, 0})}).flaw, "");
}

TEST(SlicePlan, AFlawOfACoverIsNamed) {
  EXPECT_THAT(cover_of({rows(0, 3), rows(4, 4)}).flaw,
              HasSubstr("no slice holds w[3:4, 0:6] of [8, 6]"));
  EXPECT_THAT(cover_of({rows(0, 0)}).flaw, HasSubstr("no slice holds w[8, 6]"));
  EXPECT_EQ(cover_of({rows(5, 3), rows(0, 5), columns(4, 2)}).flaw,
            "w[0:5, 0:6] of [8, 6] in rank 1 overlaps w[0:8, 4:6] of [8, 6] in rank 2");
  EXPECT_THAT(cover_of({rows(0, 8), TensorSlice::whole("w", {6, 8})}).flaw,
              AllOf(HasSubstr("another shape in rank 1"), HasSubstr("[6, 8]")));
}

class RandomLayouts {
 public:
  int64_t below(int64_t limit) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(limit));
  }

  // Cuts a tensor into at most `count` boxes.
  Slices cut(const TensorSlice& whole, int count) {
    Slices boxes = {whole};
    while (static_cast<int>(boxes.size()) < count && !whole.shape.empty()) {
      TensorSlice& box = boxes[static_cast<size_t>(below(static_cast<int64_t>(boxes.size())))];
      const auto d = static_cast<size_t>(below(static_cast<int64_t>(box.from.size())));
      const int64_t at = below(box.sizes[d] + 1);
      TensorSlice rest = box;
      rest.from[d] += at;
      rest.sizes[d] -= at;
      box.sizes[d] = at;
      boxes.push_back(std::move(rest));
    }
    std::shuffle(boxes.begin(), boxes.end(), random_);
    return boxes;
  }
  TensorSlice any_box(const TensorSlice& whole) {
    TensorSlice box = whole;
    for (size_t d = 0; d < box.from.size(); ++d) {
      box.from[d] = below(box.shape[d] + 1);
      box.sizes[d] = below(box.shape[d] - box.from[d] + 1);
    }
    return box;
  }

 private:
  std::mt19937_64 random_{7};
};

// The values of a slice, taken element by element from the whole tensor.
std::vector<int64_t> values_of(const TensorSlice& slice) {
  std::vector<int64_t> values;
  const int64_t elements =
      std::accumulate(slice.shape.begin(), slice.shape.end(), int64_t{1}, std::multiplies<>());
  for (int64_t i = 0; i < elements; ++i) {
    bool inside = true;
    int64_t rest = i;
    for (size_t d = slice.shape.size(); d-- > 0; rest /= slice.shape[d]) {
      const int64_t at = rest % slice.shape[d];
      inside = inside && at >= slice.from[d] && at < slice.from[d] + slice.sizes[d];
    }
    if (inside) values.push_back(i);
  }
  return values;
}

TEST(SlicePlan, AnyLayoutLoadsAnyOtherEachElementOnce) {
  RandomLayouts layouts;
  int64_t copied = 0;
  for (int round = 0; round < 2000; ++round) {
    std::vector<int64_t> shape(static_cast<size_t>(round % 4));
    for (int64_t& size : shape) size = layouts.below(9);
    if (round % 4 == 2) shape = {1 + layouts.below(12), 1 + layouts.below(12)};
    const TensorSlice whole = TensorSlice::whole("w", shape);
    Slices stored = layouts.cut(whole, 1 + static_cast<int>(layouts.below(5)));
    ASSERT_EQ(cover_of(stored).flaw, "");
    stored.push_back(stored[0]);  // A replica.
    Slices wanted = layouts.cut(whole, 1 + static_cast<int>(layouts.below(5)));
    wanted.push_back(layouts.any_box(whole));
    const auto reads = plan_reads(wanted, stored);
    ASSERT_EQ(reads.size(), wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i) {
      const std::vector<int64_t> expected = values_of(wanted[i]);
      std::vector<int64_t> got(expected.size(), -1);
      for (const auto& [from, box] : reads[i]) {
        const std::vector<int64_t> source = values_of(stored[from]);
        for (const SliceRun& run : runs_of(box, stored[from], wanted[i]))
          for (int64_t e = 0; e < run.elements; ++e, ++copied) {
            int64_t& place = got.at(static_cast<size_t>(run.target + e));
            ASSERT_EQ(place, -1) << "twice: " << wanted[i].describe();
            place = source.at(static_cast<size_t>(run.source + e));
          }
      }
      ASSERT_EQ(got, expected) << wanted[i].describe();
    }
  }
  EXPECT_GT(copied, 50'000);
}

// A slice less is a hole, and one that grows overlaps.
TEST(SlicePlan, ACoverThatLosesOrGrowsASliceHasAFlaw) {
  RandomLayouts layouts;
  for (int round = 0; round < 500; ++round) {
    const TensorSlice whole =
        TensorSlice::whole("w", {1 + layouts.below(9), 1 + layouts.below(9)});
    Slices slices = layouts.cut(whole, 2 + static_cast<int>(layouts.below(4)));
    std::erase_if(slices, [](const TensorSlice& slice) { return slice.elements() == 0; });
    Slices fewer = slices;
    fewer.pop_back();
    if (!fewer.empty()) {
      EXPECT_THAT(cover_of(fewer).flaw, HasSubstr("no slice holds w"));
    }
    if (TensorSlice& grown = slices.back(); !grown.is_whole()) {
      const size_t d = grown.sizes[0] < grown.shape[0] ? 0 : 1;
      if (grown.from[d] > 0) --grown.from[d];
      ++grown.sizes[d];
      EXPECT_THAT(cover_of(slices).flaw, HasSubstr("overlaps")) << grown.describe();
    }
  }
}

}  // namespace
}  // namespace trireme::plan::slice_plan_test
