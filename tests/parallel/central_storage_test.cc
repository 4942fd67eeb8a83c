// The strategy central_storage keeps its word: variables once, on the CPU.
#include "engines.h"
// This header must come after those of torch.
#include <gmock/gmock.h>

#include <torch/optim.h>
#include <set>

#include "../base/expect_error.h"

namespace trireme::central_storage_test {
namespace {

using ::testing::HasSubstr;
using tests::data_of;
using tests::Mlp;
using tests::on_ranks;
using tests::setting_of;
using tests::take_step;
using tests::thread_groups;

constexpr int kRanks = 3;

EngineSetting central(std::shared_ptr<Group> group, const OptimizerFactory& optimizer) {
  EngineSetting setting = setting_of(std::move(group), std::make_shared<Mlp>(), optimizer);
  setting.strategy = "central_storage";
  setting.options.share_parameters = true;
  return setting;
}

TEST(CentralStorage, HasAllVariablesOnceOnTheCpu) {
  const auto groups = thread_groups(kRanks);
  // [rank][name of a tensor]: its memory.
  std::vector<std::map<std::string, const void*>> places(kRanks);
  on_ranks(groups, [&](Group& group) {
    const auto rank = static_cast<size_t>(group.rank());
    at::manual_seed(1);
    const auto engine =
        find_strategy("central_storage").make(central(groups[rank], Adam{.lr = 0.01}));
    for (int64_t step = 1; step <= 3; ++step) take_step(*engine, data_of(12, step), step);
    EXPECT_TRUE(engine->shares_parameters());
    for (const StateEntry& entry : engine->state().tensors) {
      EXPECT_TRUE(entry.tensor.is_cpu());
      if (entry.kind != StateKind::buffer)
        places[rank][name_in_file(entry, 0)] = entry.tensor.const_data_ptr();
    }
  });
  // Each parameter has two tensors of Adam.
  EXPECT_GE(places[0].size(), 3u * 4u);
  for (const auto& of_rank : places) EXPECT_EQ(of_rank, places[0]);
  std::set<const void*> different;
  for (const auto& [name, place] : places[0]) different.insert(place);
  EXPECT_EQ(different.size(), places[0].size());
}

TEST(CentralStorage, RefusesAnOptimizerThatNeedsCopies) {
  const auto groups = thread_groups(2);
  const OptimizerFactory lbfgs = [](const std::vector<NamedTensor>& parameters) {
    return std::make_shared<torch::optim::LBFGS>(tests::trainable_of(parameters));
  };
  on_ranks(groups, [&](Group& group) {
    const auto rank = static_cast<size_t>(group.rank());
    const std::string message = message_of(ErrorCode::unsupported, [&] {
      find_strategy("central_storage").make(central(groups[rank], lbfgs));
    });
    EXPECT_THAT(message, HasSubstr("central_storage keeps all parameters once"));
    EXPECT_THAT(message, HasSubstr("strategy.name=mirrored"));
  });
}

}  // namespace
}  // namespace trireme::central_storage_test
