// Replicas whose models are on devices train as those of the CPU do.
#include "models.h"

#include <torch/nn/modules/batchnorm.h>
// This header must come after those of torch.
#include <gmock/gmock.h>
#include <trireme/parallel/sync_batch_norm.h>

#include "../base/expect_error.h"
#include "../stand_in/stand_in_device.h"

namespace trireme::device_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using tests::Data;
using tests::data_of;
using tests::Mlp;
using tests::on_ranks;

// The device of a rank: one of its own, or the CPU.
using DeviceOf = std::function<at::Device(int rank)>;
at::Device cpu(int) { return at::kCPU; }
at::Device own_device(int rank) { return {tests::kStandIn, static_cast<c10::DeviceIndex>(rank)}; }

struct Way {
  std::string name;
  DataParallelOptions options;
  OptimizerFactory optimizer = SGD{.lr = 0.1, .momentum = 0.9};
};

// The losses of some steps, and the parameters of rank 0 afterwards.
struct Course {
  std::vector<double> losses;
  std::vector<at::Tensor> parameters;
};

Course train(const Way& way, int ranks, const DeviceOf& device_of) {
  Course course;
  const auto groups = tests::thread_groups(ranks);
  on_ranks(groups, [&](Group& group) {
    auto net = std::make_shared<Mlp>();
    net->to(device_of(group.rank()));
    DataParallel replica(groups[static_cast<size_t>(group.rank())], net, way.optimizer,
                         way.options);
    for (int step = 0; step < 5; ++step) {
      const Data whole = data_of(11, step);
      const auto part = [&](int share, int shares) {
        const Data mine = whole.share(share, shares);
        return Data{mine.x.to(device_of(group.rank())), mine.y.to(device_of(group.rank()))};
      };
      if (const int shards = way.options.virtual_shards; shards > 0) {
        for (int shard = replica.shards().first; shard < replica.shards().last; ++shard) {
          const Data mine = part(shard, shards);
          replica.backward(loss_on(*net, mine), mine.size(), whole.size());
          replica.end_shard();
        }
      } else {
        const Data mine = part(group.rank(), group.size());
        replica.last_backward(loss_on(*net, mine), mine.size(), whole.size());
      }
      const StepOutcome outcome = replica.step();
      EXPECT_TRUE(outcome.updated);
      if (group.rank() == 0) course.losses.push_back(outcome.loss);
    }
    replica.synchronise();
    replica.check_parameters();
    for (const auto& parameter : net->parameters()) {
      EXPECT_EQ(parameter.device(), device_of(group.rank()));
      if (group.rank() == 0) course.parameters.push_back(parameter.detach().cpu().clone());
    }
  });
  return course;
}

class OnDevices : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { tests::set_stand_in_devices(3); }
};

TEST_F(OnDevices, ReplicasTrainAsThoseOfTheCpu) {
  const std::vector<Way> ways = {
      {"plain", {}},
      {"clipped", {.clip_norm = 0.1, .gradient_norm = true}},
      {"one copy is asked for", {.share_parameters = true}},
      {"small buckets", {.buckets = {.capacity_bytes = 8, .first_bytes = 8}}},
      {"adam", {}, Adam{.lr = 0.01}},
      {"scaled", {.loss_scaling = GradScalerOptions{.initial = 1024}}},
      {"top-k", {.compression = {.name = "topk", .ratio = 0.5}}},
      {"powersgd", {.compression = {.name = "powersgd", .rank = 1}}},
      {"int8", {.compression = {.name = "int8"}}},
      {"apart", {.local = {.steps = 2}}},
      {"virtual shards", {.virtual_shards = 4}}};
  for (const Way& way : ways)
    for (const int ranks : {1, 2, 3}) {
      SCOPED_TRACE(way.name + " on " + std::to_string(ranks));
      const Course on_host = train(way, ranks, cpu), there = train(way, ranks, own_device);
      ASSERT_EQ(there.losses.size(), 5u);
      for (size_t step = 0; step < on_host.losses.size(); ++step)
        EXPECT_NEAR(there.losses[step], on_host.losses[step], 1e-12);
      for (size_t i = 0; i < on_host.parameters.size(); ++i)
        EXPECT_TRUE(at::allclose(there.parameters[i], on_host.parameters[i], 1e-12, 1e-12)) << i;
    }
}

TEST_F(OnDevices, BatchNormsSeeTheSamplesOfAllReplicas) {
  std::vector<at::Tensor> gradients;
  for (const DeviceOf& device_of : {DeviceOf(cpu), DeviceOf(own_device)})
    on_ranks(tests::thread_groups(2), [&](Group& group) {
      torch::nn::BatchNorm1d norm(6);
      norm->to(device_of(group.rank()), at::kDouble);
      const at::Tensor x =
          data_of(9).share(group.rank(), 2).x.to(device_of(group.rank())).requires_grad_();
      {
        const SyncBatchNorm together(std::shared_ptr<Group>(std::shared_ptr<void>(), &group));
        norm->forward(x).square().mul(x.detach()).sum().backward();
      }
      if (group.rank() == 1) gradients.push_back(x.grad().cpu());
      if (group.rank() == 1) gradients.push_back(norm->running_var.cpu());
    });
  ASSERT_EQ(gradients.size(), 4u);
  EXPECT_TRUE(at::allclose(gradients[2], gradients[0], 1e-12, 1e-12));
  EXPECT_TRUE(at::allclose(gradients[3], gradients[1], 1e-12, 1e-12));
}

TEST_F(OnDevices, WhatIsForTheCpuAloneIsNamed) {
  const auto refusal = [](const Way& way) {
    return message_of(ErrorCode::invalid_argument, [&] { train(way, 2, own_device); });
  };
  EXPECT_THAT(refusal({"", {.offload = {.optimizer = true, .folder = "/tmp"}}}),
              AllOf(HasSubstr("memory.offload"), HasSubstr("on the CPU")));
  EXPECT_THAT(message_of(ErrorCode::unsupported, [] { train({"", {}, Lars{}}, 2, own_device); }),
              AllOf(HasSubstr("of the CPU"), HasSubstr("Lars and Lamb")));
  const auto only_rank_1 = [](int rank) { return rank == 1 ? own_device(1) : cpu(0); };
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { train({"", {}}, 2, only_rank_1); }),
              AllOf(HasSubstr("\"cpu\" on rank 0"), HasSubstr("\"hpu\" on rank 1")));
}

}  // namespace
}  // namespace trireme::device_test
