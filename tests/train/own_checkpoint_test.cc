// What a Checkpoint of a loop of one's own refuses, and what it takes from a DataParallel.
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <trireme/comm/world.h>
#include <trireme/data/from_dataset.h>
#include <trireme/data/loader.h>
#include <trireme/parallel/data_parallel.h>
#include <trireme/train/own_checkpoint.h>
// These headers must come after those of torch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../base/expect_error.h"
#include "jobs.h"

namespace trireme::own_checkpoint_test {
namespace {

using ::testing::HasSubstr;

std::shared_ptr<torch::nn::LinearImpl> a_model() {
  return std::make_shared<torch::nn::LinearImpl>(2, 1);
}

class Numbers : public Source {
 public:
  explicit Numbers(int64_t size) : size_(size) {}
  int64_t size() const override { return size_; }
  Example get(const Draw& draw) const override {
    return {at::full({2}, static_cast<double>(draw.index)), at::zeros({1})};
  }

 private:
  int64_t size_;
};

Loader loader_of(World& world, int64_t samples, uint64_t seed = 3) {
  return {world, std::make_shared<Numbers>(samples), {.batch = 4, .seed = seed, .threads = 0}};
}

// Trains, with a commit behind each step, until `steps` steps were made in all.
int64_t train(World& world, DataParallel& replica, Loader& loader, Checkpoint& checkpoint,
              const std::shared_ptr<torch::nn::LinearImpl>& model, int64_t steps,
              int64_t asks_in = -1) {
  int64_t asked = 0;
  run_elastic(world, checkpoint, [&] {
    while (checkpoint.step() < steps) {
      const Batch batch = loader.next();
      if (checkpoint.step() + 1 == asks_in) replica.request_stop();
      const StepOutcome outcome =
          replica.step(model->forward(batch.data).mean() * 1e-3, batch.size());
      if (outcome.stop) ++asked;
      checkpoint.commit();
    }
  });
  return asked;
}

TEST(OwnCheckpoint, RefusesTheOptimizerOfADataParallelWithoutIt) {
  World world = tests::alone();
  const auto model = a_model();
  DataParallel replica(world, model, SGD{.lr = 0.1});
  EXPECT_THAT(message_of(ErrorCode::invalid_argument,
                         [&] { Checkpoint(world, *model, replica.optimizer(), {}); }),
              HasSubstr("trireme::Checkpoint(world, replica, options)"));
}

TEST(OwnCheckpoint, RefusesADataParallelOfAGroup) {
  World world = tests::alone();
  DataParallel replica(world.make_groups(1)[0], a_model(), SGD{.lr = 0.1});
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { Checkpoint(world, replica, {}); }),
              HasSubstr("made with a Group"));
}

TEST(OwnCheckpoint, RefusesTwoTensorsOfOneName) {
  World world = tests::alone();
  const auto first = a_model(), second = a_model();
  DataParallel replica(world, first, SGD{.lr = 0.1}), other(world, second, SGD{.lr = 0.1});
  Checkpoint checkpoint(world, replica, {});
  checkpoint.include("critic", other);
  torch::optim::SGD optimizer(second->parameters(), 0.1);
  EXPECT_THAT(message_of(ErrorCode::invalid_argument,
                         [&] { checkpoint.include("critic", *second, optimizer); }),
              HasSubstr("two models have a tensor of the name critic."));
}

TEST(OwnCheckpoint, AStopOfTheLoopsOwnDoesNotEndIt) {
  World world = tests::alone();
  const auto model = a_model();
  DataParallel replica(world, model, SGD{.lr = 0.1});
  Loader loader = loader_of(world, 10);
  Checkpoint checkpoint(world, replica, {});
  checkpoint.include(loader);
  EXPECT_EQ(train(world, replica, loader, checkpoint, model, 6, /*asks_in=*/3), 1);
  EXPECT_EQ(checkpoint.step(), 6);
  EXPECT_FALSE(checkpoint.stopped());
}

TEST(OwnCheckpoint, KnowsTheDataOfALoader) {
  const tests::Folder folder;
  const auto run = [&](int64_t samples, uint64_t seed, int64_t steps) {
    World world = tests::alone();
    const auto model = a_model();
    DataParallel replica(world, model, SGD{.lr = 0.1});
    Loader loader = loader_of(world, samples, seed);
    Checkpoint checkpoint(world, replica, {.dir = folder.path(), .every_steps = 1});
    checkpoint.include(loader);
    train(world, replica, loader, checkpoint, model, steps);
    return loader.position();
  };
  EXPECT_EQ(run(10, 3, 2), (plan::DataPosition{0, 8}));
  EXPECT_EQ(run(10, 3, 3), (plan::DataPosition{1, 0}));
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { run(11, 3, 4); }),
              HasSubstr("loader 1 of the checkpoint has 10 samples in an epoch, and this "
                        "programme's has 11"));
  testing::internal::CaptureStderr();
  run(10, 4, 4);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("the seed of a Loader was 3 in the checkpoint and is 4 now"));
}

TEST(OwnCheckpoint, NamesALoaderOfTheOtherKind) {
  const tests::Folder folder;
  World world = tests::alone();
  const auto model = a_model();
  DataParallel replica(world, model, SGD{.lr = 0.1});
  Loader loader = loader_of(world, 10);
  {
    Checkpoint checkpoint(world, replica, {.dir = folder.path(), .every_steps = 1});
    checkpoint.include(loader);
    train(world, replica, loader, checkpoint, model, 1);
  }
  struct Elsewhere : LoaderPlace {
    Json position() const override { return {{"epoch", 0}, {"taken", 0}, {"numbers", ""}}; }
    void seek(const Json&) override {}
  } elsewhere;
  Checkpoint checkpoint(world, replica, {.dir = folder.path()});
  checkpoint.include(elsewhere);
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { checkpoint.resume(); }),
              HasSubstr("loader 1 of the checkpoint is one of make_data_loader, or a "
                        "trireme::Loader, and this programme's is the other"));
}

}  // namespace
}  // namespace trireme::own_checkpoint_test
