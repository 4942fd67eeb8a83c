// The needs of strategies: the groups of a mesh, and a model that can be cut.
#include "lost_worker.h"
#include "own_strategies.h"
// This header must come after those of torch.
#include <gmock/gmock.h>

#include "../base/expect_error.h"

namespace trireme::strategy_needs_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using tests::clouds;
using tests::difference;
using tests::fit;
using tests::job;

constexpr const char* kGrid = "strategy_needs_test_grid";
constexpr const char* kWrongGrid = "strategy_needs_test_wrong_grid";
constexpr const char* kCut = "strategy_needs_test_cut";

// Adds gradients up along the axes of a grid, one after the other.
class GridEngine : public ReplicaEngine {
 public:
  explicit GridEngine(const EngineSetting& setting) : ReplicaEngine(setting) {
    EXPECT_EQ(mesh().rank, group().rank());
    EXPECT_EQ(mesh().shape->world_size(), group().size());
  }
  static EngineNeeds needs(const plan::DivisionOptions&, int ranks) {
    const int rows = ranks % 2 == 0 ? 2 : 1;
    return {.mesh = plan::Mesh({{"row", rows}, {"column", ranks / rows}})};
  }

 protected:
  void exchange() override {
    for (const auto& [name, tensor] : parameters()) {
      at::Tensor& gradient = tensor.mutable_grad();
      gradient = gradient.defined() ? gradient.contiguous() : at::zeros_like(tensor);
      for (const char* const axis : {"row", "column"}) mesh().along(axis)->all_reduce(gradient);
    }
  }
  void update() override { optimizer().step(); }
};

class StrategyNeeds : public tests::OwnStrategies {
 protected:
  static void SetUpTestSuite() {
    static std::once_flag once;
    std::call_once(once, [] {
      register_strategy(kGrid, {make_engine<GridEngine>, {}, GridEngine::needs});
      register_strategy(kWrongGrid,
                        {make_engine<GridEngine>, {}, [](const plan::DivisionOptions&, int) {
                           return EngineNeeds{.mesh = plan::Mesh({{"row", 2}})};
                         }});
      register_strategy(
          kCut, {make_engine<tests::AllReduced>, {}, [](const plan::DivisionOptions&, int) {
                   return EngineNeeds{.blocks = true};
                 }});
    });
  }
};

TEST_F(StrategyNeeds, AMeshBringsTheGroupsAlongItsAxes) {
  const Report reference = fit(options(12, 1, "one_device"), job(), clouds(90), clouds(31, 2));
  for (const int replicas : {1, 2, 3, 4}) {
    const Report report = fit(options(12, replicas, kGrid), job(), clouds(90), clouds(31, 2));
    EXPECT_LT(difference(report.loss_history, reference.loss_history), 1e-10) << replicas;
    EXPECT_EQ(report.world_size, replicas);
  }
}

TEST_F(StrategyNeeds, AMeshIsMadeAnewForTheRanksOfEachGeneration) {
  const Report reference = fit(options(12, 1, "one_device"), job(), clouds(90));
  const tests::AfterALoss after = tests::train_with_a_loss(options(12, 1, kGrid));
  for (const int process : {0, 1}) {
    const Report& report = after.reports[static_cast<size_t>(process)];
    EXPECT_EQ(after.errors[static_cast<size_t>(process)], "");
    EXPECT_EQ(report.world_size, 2);
    EXPECT_LT(difference(report.loss_history, reference.loss_history), 1e-10);
  }
}

TEST_F(StrategyNeeds, AMeshThatIsNotThatOfTheRanksIsRefused) {
  EXPECT_THAT(message_of(ErrorCode::invalid_argument,
                         [] { fit(options(12, 3, kWrongGrid), job(), clouds(90)); }),
              AllOf(HasSubstr("3")));
}

TEST_F(StrategyNeeds, AModelWithoutBlocksIsRefusedIfTheStrategyCutsIt) {
  EXPECT_THAT(message_of(ErrorCode::invalid_argument,
                         [] { fit(options(12, 2, kCut), job(), clouds(90)); }),
              AllOf(HasSubstr(kCut), HasSubstr("names no blocks")));
}

struct Cuttable : tests::Classifier {
  std::vector<Block> blocks() {
    return {
        {"in", {in.ptr()}, [this](const Tensors& all) { return Tensors{at::tanh(in(all[0]))}; }},
        {"out", {out.ptr()}, [this](const Tensors& all) { return Tensors{out(all[0])}; }}};
  }
};

TEST_F(StrategyNeeds, AModelWithBlocksIsTrainedByAStrategyThatCutsIt) {
  EXPECT_EQ(fit(options(12, 2, kCut), job<Cuttable>(), clouds(90)).steps, 12);
}

}  // namespace
}  // namespace trireme::strategy_needs_test
