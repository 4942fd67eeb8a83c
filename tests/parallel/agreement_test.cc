#include <trireme/base/error.h>
#include <trireme/parallel/agreement.h>
#include <trireme/parallel/data_parallel.h>
#include <trireme/parallel/options_json.h>
#include "../comm/ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

namespace trireme {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using tests::on_ranks;
using tests::thread_groups;

// The errors of all ranks; empty where there was none.
std::vector<std::string> errors_of(int ranks, const std::function<void(Group&)>& action) {
  std::vector<std::string> errors(static_cast<size_t>(ranks));
  on_ranks(thread_groups(ranks), [&](Group& group) {
    try {
      action(group);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      errors[static_cast<size_t>(group.rank())] = error.what();
    }
  });
  return errors;
}

TEST(Agreement, AcceptsEqualValues) {
  for (const int ranks : {1, 2, 5})
    for (const std::string& error : errors_of(ranks, [](Group& group) {
           agree(group, {{"a", 1}, {"b", {{"c", Json::array({1, 2})}}}});
         }))
      EXPECT_EQ(error, "");
}

TEST(Agreement, NamesTheLowestRankThatDiffersAndTheFirstDifferenceOnEveryRank) {
  const auto errors = errors_of(4, [](Group& group) {
    Json mine = {{"same", 1}, {"options", {{"rate", 0.5}, {"size", 3}}}};
    if (group.rank() == 2) mine["options"]["size"] = 4;
    if (group.rank() == 3) mine["options"]["rate"] = 0.25;
    agree(group, mine);
  });
  for (const std::string& error : errors)
    EXPECT_THAT(error, HasSubstr("options.size is 3 on rank 0, and 4 on rank 2"));
}

TEST(Agreement, NamesAnEntryThatOnlyOneRankHas) {
  for (const std::string& error : errors_of(2, [](Group& group) {
         Json mine = {{"a", 1}};
         if (group.rank() == 1) mine["z"] = Json::array({7});
         agree(group, mine);
       }))
    EXPECT_THAT(error, HasSubstr("z.0 is nothing on rank 0, and 7 on rank 1"));
}

struct Difference {
  const char* name;
  DataParallelOptions options;
  double lr = 0.1, momentum = 0;
};

// Each of these changes what the ranks compute together or how.
TEST(Agreement, EnginesRefuseRanksWithOtherOptionsOptimizersAndPlans) {
  const std::vector<Difference> differences = {
      {"options.train.clip_norm", {.clip_norm = 1}},
      {"options.strategy.share_parameters", {.share_parameters = true}},
      {"options.guard", {.guard = {.wanted = true}}},
      {"options.strategy.first_bucket_bytes", {.buckets = {.first_bytes = 8}}},
      {"options.strategy.compression", {.compression = {.name = "int8"}}},
      {"options.strategy.local_steps", {.local = {.steps = 4}}},
      {"options.reproducible.virtual_shards", {.virtual_shards = 2}},
      {"options.train.loss_scale", {.loss_scaling = GradScalerOptions{}}},
      {"options.accept", {.accept = [](double, double) { return true; }}},
      {"optimizer.groups.0.lr", {}, 0.2},
      {"optimizer.groups.0.momentum", {}, 0.1, 0.9},
  };
  for (const Difference& difference : differences) {
    const auto errors = errors_of(2, [&](Group& group) {
      const Difference& mine = group.rank() == 1 ? difference : Difference{};
      const auto net = std::make_shared<torch::nn::LinearImpl>(3, 2);
      const std::shared_ptr<Group> own(&group, [](Group*) {});
      DataParallel(own, net, SGD{.lr = mine.lr, .momentum = mine.momentum}, mine.options);
    });
    for (const std::string& error : errors)
      EXPECT_THAT(error, AllOf(HasSubstr(difference.name), HasSubstr("on rank 1")));
  }
}

// The options of one rank alone are refused. The others hear of it, and do not wait.
TEST(Agreement, ARankThatRefusesItsOptionsIsNamedOnAllRanks) {
  for (const DataParallelOptions& refused :
       {DataParallelOptions{.buckets = {.first_bytes = 0}},
        DataParallelOptions{.compression = {.name = "zip"}},
        DataParallelOptions{.local = {.after = -1}},
        DataParallelOptions{.compression = {.name = "int8"}, .virtual_shards = 2}}) {
    const auto errors = errors_of(3, [&](Group& group) {
      const auto net = std::make_shared<torch::nn::LinearImpl>(3, 2);
      const std::shared_ptr<Group> own(&group, [](Group*) {});
      DataParallel(own, net, SGD{}, group.rank() == 2 ? refused : DataParallelOptions{});
    });
    for (const std::string& error : errors)
      EXPECT_THAT(error, AllOf(HasSubstr("error is nothing on rank 0"), HasSubstr("on rank 2")));
  }
}

TEST(Agreement, OptionsThatAllRanksRefuseAreRefusedByName) {
  for (const std::string& error : errors_of(2, [](Group& group) {
         const auto net = std::make_shared<torch::nn::LinearImpl>(3, 2);
         const std::shared_ptr<Group> own(&group, [](Group*) {});
         DataParallel(own, net, SGD{}, {.compression = {.name = "zip"}});
       }))
    EXPECT_THAT(error, HasSubstr("strategy.compression is \"zip\""));
}

// A norm that is only reported needs no other rank, unless ranks update shards of one copy.
TEST(Agreement, OneRankAloneMayWantTheNorm) {
  for (const bool share : {false, true})
    for (const std::string& error : errors_of(2, [&](Group& group) {
           const auto net = std::make_shared<torch::nn::LinearImpl>(3, 2);
           const std::shared_ptr<Group> own(&group, [](Group*) {});
           DataParallel(own, net, SGD{},
                        {.gradient_norm = group.rank() == 0, .share_parameters = share});
         }))
      EXPECT_EQ(error.find("gradient_norm") != std::string::npos, share) << error;
}

// The number of parameters in each group is the same.
TEST(Agreement, EnginesRefuseRanksWhoseGroupsHaveOtherParameters) {
  for (const std::string& error : errors_of(2, [](Group& group) {
         const std::shared_ptr<Group> own(&group, [](Group*) {});
         const bool turned = group.rank() == 1;
         const OptimizerFactory factory = [&](const std::vector<NamedTensor>& parameters) {
           const auto part = [&](size_t i) {
             return torch::optim::OptimizerParamGroup({parameters[turned ? 1 - i : i].tensor});
           };
           return std::make_shared<torch::optim::SGD>(
               std::vector<torch::optim::OptimizerParamGroup>{part(0), part(1)},
               torch::optim::SGDOptions(0.1));
         };
         DataParallel(own, std::make_shared<torch::nn::LinearImpl>(3, 2), factory);
       }))
    EXPECT_THAT(error, HasSubstr("optimizer.parameters by group"));
}

TEST(Agreement, EnginesRefuseRanksWithAnotherKindOfOptimizer) {
  for (const std::string& error : errors_of(2, [](Group& group) {
         const auto net = std::make_shared<torch::nn::LinearImpl>(3, 2);
         const std::shared_ptr<Group> own(&group, [](Group*) {});
         const OptimizerFactory sgd = SGD{}, adam = Adam{};
         DataParallel(own, net, group.rank() == 0 ? sgd : adam);
       }))
    EXPECT_THAT(error, HasSubstr("optimizer."));
}

}  // namespace
}  // namespace trireme
