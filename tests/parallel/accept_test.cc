// A step that is not accepted changes nothing, on any replica and in any way of exchanging.
#include "models.h"
// This header must come after those of torch.
#include <gmock/gmock.h>

namespace trireme::accept_test {
namespace {

using tests::Data;
using tests::data_of;
using tests::loss_on;
using tests::Mlp;
using tests::on_ranks;
using tests::thread_groups;

struct Way {
  std::string name;
  int ranks = 2;
  bool share = false;
  double clip_norm = 0;
};
class Accept : public ::testing::TestWithParam<Way> {
 protected:
  // The parameters after four steps. The third step is refused if `refuses`, and
  // otherwise left out.
  std::vector<at::Tensor> train(bool refuses) const {
    const Way& way = GetParam();
    const auto groups = thread_groups(way.ranks);
    std::vector<at::Tensor> result;
    on_ranks(groups, [&](Group& group) {
      auto net = std::make_shared<Mlp>();
      int asked = 0;
      DataParallelOptions options;
      options.clip_norm = way.clip_norm;
      options.share_parameters = way.share;
      options.accept = [&](double loss, double norm) {
        EXPECT_GT(loss, 0);
        EXPECT_EQ(norm > 0, way.clip_norm > 0);
        return ++asked != 3 || !refuses;
      };
      DataParallel replica(groups[static_cast<size_t>(group.rank())], net, Adam{.lr = 0.05},
                           options);
      EXPECT_EQ(replica.shares_parameters(), way.share);
      for (int step = 1; step <= 4; ++step) {
        if (step == 3 && !refuses) {
          asked = 3;
          continue;
        }
        const Data mine = data_of(12, step).share(group.rank(), group.size());
        const StepOutcome outcome = replica.step(loss_on(*net, mine), mine.size(), 12);
        EXPECT_EQ(outcome.updated, step != 3 || !refuses);
        EXPECT_FALSE(outcome.nonfinite_gradients);
        EXPECT_EQ(outcome.samples, 12);
      }
      EXPECT_EQ(asked, 4);
      if (group.rank() == group.size() - 1)
        for (const auto& parameter : net->parameters())
          result.push_back(parameter.detach().clone());
    });
    return result;
  }
};
INSTANTIATE_TEST_SUITE_P(Ways, Accept,
                         ::testing::Values(Way{"alone", 1}, Way{"all_reduce"},
                                           Way{"all_reduce_clipped", 3, false, 0.5},
                                           Way{"shared", 2, true},
                                           Way{"shared_clipped", 3, true, 0.5}),
                         [](const auto& each) { return each.param.name; });

TEST_P(Accept, ARefusedStepDoesNotCountForParametersAndOptimizer) {
  const auto refused = train(true), left_out = train(false);
  ASSERT_EQ(refused.size(), left_out.size());
  for (size_t i = 0; i < refused.size(); ++i) EXPECT_TRUE(refused[i].equal(left_out[i])) << i;
}

}  // namespace
}  // namespace trireme::accept_test
