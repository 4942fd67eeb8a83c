// Updates that a loop makes past its engine are counted, on one process as on several.
#include <trireme/parallel/updates_past_engine.h>

#include "models.h"

#include <torch/optim/sgd.h>
// This header must come after those of torch.
#include <gmock/gmock.h>

#include "../base/expect_error.h"

namespace trireme::updates_past_engine_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using tests::data_of;
using tests::Mlp;

void write(const std::vector<NamedTensor>& parameters) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : parameters) tensor.data().add_(1);
}

TEST(UpdatesPastEngine, CountsWritesBetweenLooksUntilTheEngineMakesAStep) {
  const Mlp net;
  const std::vector<NamedTensor> parameters = state_of(net).parameters;
  UpdatesPastEngine updates(parameters);
  write(parameters);  // Nothing was seen before.
  updates.look();
  updates.look();
  EXPECT_EQ(updates.count(), 0);
  for (int step = 0; step < 15; ++step) {
    write(parameters);
    updates.look();
  }
  EXPECT_EQ(updates.count(), 15);
  EXPECT_FALSE(updates.are_too_many());
  updates.adopt();  // All ranks have got other values.
  write(parameters);
  updates.look();
  EXPECT_EQ(updates.count(), 15);
  write(parameters);
  updates.look();
  EXPECT_TRUE(updates.are_too_many());
  updates.forget();
  EXPECT_EQ(updates.count(), 0);
  write(parameters);
  updates.look();
  EXPECT_EQ(updates.count(), 0);
}

// A loop in one process that was left as it was, with an engine beside it.
struct PlainLoop {
  World world = World::join({}, Environment());
  std::shared_ptr<Mlp> net = std::make_shared<Mlp>();
  std::shared_ptr<torch::optim::SGD> optimizer =
      std::make_shared<torch::optim::SGD>(net->parameters(), torch::optim::SGDOptions(0.01));
  DataParallel replica{world, net, optimizer};

  void run(int steps) {
    for (int step = 0; step < steps; ++step) {
      optimizer->zero_grad();
      loss_on(*net, data_of(4)).backward();
      optimizer->step();
    }
  }
};

TEST(UpdatesPastEngine, EndsALoopThatNeverCallsStepOfItsReplica) {
  PlainLoop loop;
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { loop.run(40); }),
              AllOf(HasSubstr("rank 0, step 17: the parameters are updated behind"),
                    HasSubstr("try: call replica.step(loss, samples)")));
}

TEST(UpdatesPastEngine, EndsALoopThatLeavesBeforeItHasMadeMany) {
  PlainLoop loop;
  loop.run(3);
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { loop.world.leave(); }),
              HasSubstr("rank 0, step 3: the parameters are updated behind"));
}

TEST(UpdatesPastEngine, LetsALoopLeaveThatHasLoadedWeightsForBackwardPassesOfItsOwn) {
  PlainLoop loop;
  for (int load = 0; load < 2; ++load) {
    loss_on(*loop.net, data_of(4)).backward();
    write(loop.replica.state().parameters);
  }
  loop.world.leave();
  loop.run(20);  // Behind leave() this rank may train alone.
}

TEST(UpdatesPastEngine, LetsALoopLeaveThatHasMadeStepsAndWritesItsParametersAtTheEnd) {
  PlainLoop loop;
  loop.replica.step(loss_on(*loop.net, data_of(4)), 4);
  loss_on(*loop.net, data_of(4)).backward();
  write(loop.replica.state().parameters);
  loop.world.leave();
}

}  // namespace
}  // namespace trireme::updates_past_engine_test
