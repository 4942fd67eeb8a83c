#include <ATen/ATen.h>

#include <trireme/train/parts_in_memory.h>
#include <mutex>
// This header must come after those of torch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../comm/ranks.h"

namespace trireme::parts_in_memory_test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Two stages: the first has the parameter "a", the second one "b". Each value says where it is
// from: 100 x step + the former rank.
RunState part(int stage, int64_t step, int rank) {
  RunState kept;
  kept.progress.step = step;
  kept.in_slices = true;
  kept.part = {stage, 2};
  kept.rank = rank;
  const std::string own = stage == 0 ? "a" : "b", other = stage == 0 ? "b" : "a";
  const double value = 100.0 * static_cast<double>(step) + rank;
  const auto held = [&](const std::string& name, at::IntArrayRef shape, StateKind kind) {
    kept.held.push_back(whole(name, at::full(shape, value, at::kDouble), kind));
  };
  held(own, {2, 3}, StateKind::parameter);
  held("mean of " + own, {3}, StateKind::buffer);
  held("exp_avg/" + own, {2, 3}, StateKind::optimizer);
  // Its knowledge about the other stage is old.
  kept.held.push_back(
      whole("scale of " + other, at::full({}, -1.0, at::kDouble), StateKind::parameter));
  kept.held.back().is_foreign = true;
  held("scale of " + own, {}, StateKind::parameter);
  kept.counters["optimizer"] = {{"kind", "Adam"},
                                {"counters", {{"step", {{own, step}, {other, 1}}}}}};
  return kept;
}

using Parts = std::vector<const RunState*>;

struct Entries {
  StateView view;
  at::Tensor add(const std::string& name, at::IntArrayRef shape, StateKind kind) {
    const at::Tensor tensor = at::zeros(shape, at::kDouble);
    view.push_back(whole(name, tensor, kind));
    return tensor;
  }
};

// Every rank wants all tensors. `kept`: [rank]; without a value the rank is new.
void expect_values(const std::vector<std::optional<RunState>>& kept, double a, double mean_of_a,
                   double b) {
  tests::on_ranks(tests::thread_groups(static_cast<int>(kept.size())), [&](Group& group) {
    const auto& own = kept[static_cast<size_t>(group.rank())];
    const PartsInMemory parts(own ? Parts{&*own} : Parts{}, -1, group);
    ASSERT_EQ(parts.missing(), "");
    Entries wanted;
    const at::Tensor first = wanted.add("a", {2, 3}, StateKind::parameter),
                     mean = wanted.add("mean of a", {3}, StateKind::buffer),
                     second = wanted.add("b", {2, 3}, StateKind::parameter),
                     scale = wanted.add("scale of b", {}, StateKind::parameter),
                     moment = wanted.add("exp_avg/b", {2, 3}, StateKind::optimizer);
    wanted.add("exp_avg/scale of b", {}, StateKind::optimizer);
    EXPECT_EQ(parts.fill(wanted.view),
              (std::set<std::string>{"a", "mean of a", "b", "scale of b", "exp_avg/b"}));
    const auto floor_to_step = [](const at::Tensor& tensor) {
      return at::floor_divide(tensor, 100).max().item<double>();
    };
    EXPECT_EQ(floor_to_step(first), a) << group.rank();
    EXPECT_EQ(floor_to_step(first), floor_to_step(second));
    EXPECT_EQ(floor_to_step(scale), b);
    EXPECT_EQ(floor_to_step(moment), b);
    EXPECT_EQ(mean[0].item<double>(), mean_of_a) << group.rank();
    Json counters;
    parts.complete(counters);
    const Json& steps = counters["optimizer"]["counters"]["step"];
    EXPECT_EQ(steps.size(), 2U);
    EXPECT_EQ(steps["a"], static_cast<int64_t>(a));
    EXPECT_EQ(steps["b"], static_cast<int64_t>(b));
  });
}

std::string missing_in(const std::vector<std::optional<RunState>>& kept) {
  std::string missing;
  std::mutex mutex;
  tests::on_ranks(tests::thread_groups(static_cast<int>(kept.size())), [&](Group& group) {
    const auto& own = kept[static_cast<size_t>(group.rank())];
    const PartsInMemory parts(own ? Parts{&*own} : Parts{}, -1, group);
    const std::lock_guard lock(mutex);
    missing = parts.missing();
  });
  return missing;
}

RunState copy_of(RunState part, int generation) {
  part.generation = generation;
  return part;
}

// The step of the state that ranks make up; -1: none.
int64_t step_of(const std::vector<std::vector<RunState>>& kept, int64_t least_step = -1) {
  int64_t step = -1;
  std::mutex mutex;
  tests::on_ranks(tests::thread_groups(static_cast<int>(kept.size())), [&](Group& group) {
    Parts own;
    for (const RunState& part : kept[static_cast<size_t>(group.rank())]) own.push_back(&part);
    const PartsInMemory parts(own, least_step, group);
    if (!parts.missing().empty() || group.rank() != parts.first_holder()) return;
    const std::lock_guard lock(mutex);
    step = parts.first_part().progress.step;
    EXPECT_EQ(parts.are_copies(), parts.first_part().generation >= 0);
  });
  return step;
}

TEST(PartsInMemory, CopiesCountOfTheNewestStepOfWhichAllPartsAreThere) {
  // Rank 1 is new; the part that its predecessor had is in the memory of rank 0.
  const std::vector<RunState> all = {part(0, 9, 0), copy_of(part(0, 6, 0), 2),
                                     copy_of(part(1, 6, 1), 2), copy_of(part(0, 4, 0), 2),
                                     copy_of(part(1, 4, 1), 2)};
  EXPECT_EQ(step_of({all, {}}), 6);
  // The copy of step 6 had not come.
  EXPECT_EQ(step_of({{all[0], all[1], all[3], all[4]}, {}}), 4);
  // A checkpoint is newer.
  EXPECT_EQ(step_of({all, {}}, 7), -1);
  EXPECT_EQ(step_of({all, {}}, 6), 6);
  // The parts that the ranks have now count first.
  EXPECT_EQ(step_of({all, {part(1, 9, 1)}}), 9);
}

TEST(PartsInMemory, CopiesOfTwoGenerationsAreNeverMixed) {
  EXPECT_EQ(step_of({{copy_of(part(0, 6, 0), 2)}, {copy_of(part(1, 6, 1), 3)}}), -1);
  EXPECT_EQ(step_of({{copy_of(part(0, 6, 0), 3)}, {copy_of(part(1, 6, 1), 3)}}), 6);
}

TEST(PartsInMemory, ANewRankGetsItsPartFromARankThatHasIt) {
  expect_values({part(0, 7, 0), part(1, 7, 1), std::nullopt, part(1, 7, 3)}, 7, 700, 7);
}

TEST(PartsInMemory, RunningStatisticsAreThoseOfTheFirstReplica) {
  // The ranks have other numbers now.
  expect_values({part(0, 7, 2), part(1, 7, 3), part(0, 7, 0), std::nullopt}, 7, 700, 7);
}

TEST(PartsInMemory, PartsOfDifferentStepsAreNeverMixed) {
  // A stage of each replica has committed step 8, and no rank has it for the other stage.
  expect_values({part(0, 8, 0), part(1, 7, 1), part(0, 7, 2), part(1, 7, 3)}, 7, 702, 7);
  // Step 8 is whole on the second replica.
  expect_values({part(0, 7, 0), part(1, 7, 1), part(0, 8, 2), part(1, 8, 3)}, 8, 802, 8);
  // It is whole over two replicas.
  expect_values({part(0, 8, 0), part(1, 7, 1), part(0, 7, 2), part(1, 8, 3)}, 8, 800, 8);
}

TEST(PartsInMemory, SaysWhatIsMissing) {
  EXPECT_THAT(missing_in({part(0, 8, 0), part(1, 7, 1)}),
              HasSubstr("1 of the 2 parts of the state after step 8 was lost"));
  EXPECT_THAT(missing_in({part(0, 8, 0), std::nullopt, part(0, 8, 2)}), HasSubstr("1 of the 2"));
  EXPECT_THAT(missing_in({std::nullopt, std::nullopt}), HasSubstr("no worker"));
  // A step further apart is of another time.
  EXPECT_THAT(missing_in({part(0, 9, 0), part(1, 7, 1), part(0, 7, 2)}), HasSubstr("step 9"));
}

}  // namespace
}  // namespace trireme::parts_in_memory_test
