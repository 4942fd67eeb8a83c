// The list of an engine's tensors, and the names of its entries in checkpoints.
#include <ATen/ATen.h>
// This header must come after those of torch.
#include <gmock/gmock.h>

#include <trireme/parallel/state_view.h>
#include <algorithm>

namespace trireme::state_view_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr StateKind kAllKinds[] = {StateKind::parameter, StateKind::buffer, StateKind::optimizer,
                                   StateKind::archive,   StateKind::master, StateKind::average,
                                   StateKind::common,    StateKind::rank,   StateKind::residual};

std::vector<std::string> names_in(const std::vector<NamedTensor>& tensors) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors) names.push_back(name);
  return names;
}

std::string name_of(const std::string& tensor, StateKind kind, int rank) {
  return name_in_file(whole(tensor, at::zeros({2}), kind), rank);
}

// These names are the format of checkpoints. Older checkpoints have them, so they must not change.
TEST(StateView, NamesInFilesStayAsTheyWere) {
  EXPECT_EQ(name_of("conv1.weight", StateKind::parameter, 0), "conv1.weight");
  EXPECT_EQ(name_of("bn.running_mean", StateKind::buffer, 0), "bn.running_mean");
  EXPECT_EQ(name_of("exp_avg/conv1.weight", StateKind::optimizer, 0), "exp_avg/conv1.weight");
  EXPECT_EQ(name_of("archive", StateKind::archive, 0), "archive");
  EXPECT_EQ(name_of("conv1.weight", StateKind::master, 0), "engine/master/conv1.weight");
  EXPECT_EQ(name_of("conv1.weight", StateKind::average, 0), "engine/ema/conv1.weight");
  EXPECT_EQ(name_of("center/conv1.weight", StateKind::common, 0), "engine/center/conv1.weight");
  EXPECT_EQ(name_of("q/conv1.weight", StateKind::rank, 0), "rank0/q/conv1.weight");
  EXPECT_EQ(name_of("error/conv1.weight", StateKind::residual, 3), "rank3/error/conv1.weight");
}

TEST(StateView, OnlyTensorsOfSingleRanksHaveTheRankInTheirNames) {
  for (const StateKind kind : kAllKinds) {
    const bool differs = name_of("w", kind, 1) != name_of("w", kind, 12);
    EXPECT_EQ(differs, is_of_one_rank(kind)) << static_cast<int>(kind);
  }
}

TEST(StateView, TwoKindsAreOfTheModelAndTwoOfSingleRanks) {
  for (const StateKind kind : kAllKinds) {
    EXPECT_EQ(is_of_model(kind), kind == StateKind::parameter || kind == StateKind::buffer);
    EXPECT_EQ(is_of_one_rank(kind), kind == StateKind::rank || kind == StateKind::residual);
  }
}

TEST(StateView, AWholeEntryHoldsTheTensorItselfAndItsForm) {
  const at::Tensor tensor = at::zeros({3, 2});
  const StateEntry entry = whole("w", tensor, StateKind::optimizer);
  EXPECT_TRUE(entry.tensor.is_same(tensor));
  EXPECT_EQ(entry.kind, StateKind::optimizer);
  EXPECT_EQ(entry.slice, plan::TensorSlice::whole("w", {3, 2}));
  EXPECT_TRUE(whole("step", at::zeros({}), StateKind::common).slice.is_whole());
}

TEST(StateView, ListsTensorsByKindInTheOrderInWhichTheyWereAppended) {
  const at::Tensor a = at::zeros({2}), b = at::ones({3}), c = at::zeros({4});
  StateView view;
  append(view, {{"b", b}}, StateKind::parameter);
  append(view, {{"c", c}}, StateKind::buffer);
  append(view, {{"a", a}}, StateKind::parameter);
  append(view, {}, StateKind::common);
  ASSERT_EQ(view.size(), 3U);
  const std::vector<NamedTensor> parameters = tensors_of(view, StateKind::parameter);
  EXPECT_THAT(names_in(parameters), ElementsAre("b", "a"));
  EXPECT_TRUE(parameters[0].tensor.is_same(b));
  EXPECT_TRUE(parameters[1].tensor.is_same(a));
  EXPECT_THAT(names_in(tensors_of(view, StateKind::buffer)), ElementsAre("c"));
  EXPECT_THAT(tensors_of(view, StateKind::common), IsEmpty());
}

TEST(UpdatedTensors, AreTheParametersWithoutMasters) {
  StateView view;
  append(view, {{"w", at::zeros({2})}, {"b", at::zeros({1})}}, StateKind::parameter);
  append(view, {{"mean", at::zeros({2})}}, StateKind::buffer);
  append(view, {{"exp_avg/w", at::zeros({2})}}, StateKind::optimizer);
  const std::vector<NamedTensor> updated = updated_tensors(view);
  EXPECT_THAT(names_in(updated), ElementsAre("w", "b"));
  EXPECT_TRUE(updated[0].tensor.is_same(view[0].tensor));
  EXPECT_TRUE(updated[1].tensor.is_same(view[1].tensor));
}

TEST(UpdatedTensors, AreTheMastersOfParametersThatHaveOne) {
  const at::Tensor half = at::zeros({2}, at::kBFloat16), norm = at::zeros({1}),
                   master = at::zeros({2});
  StateView view;
  append(view, {{"w", half}, {"norm.weight", norm}}, StateKind::parameter);
  append(view, {{"w", master}}, StateKind::master);
  // Neither an average nor another tensor of the same name is updated by the step.
  append(view, {{"w", at::zeros({2})}}, StateKind::average);
  append(view, {{"norm.weight", at::zeros({1})}}, StateKind::common);
  const std::vector<NamedTensor> updated = updated_tensors(view);
  EXPECT_THAT(names_in(updated), ElementsAre("w", "norm.weight"));
  EXPECT_TRUE(updated[0].tensor.is_same(master));
  EXPECT_TRUE(updated[1].tensor.is_same(norm));
}

}  // namespace
}  // namespace trireme::state_view_test
