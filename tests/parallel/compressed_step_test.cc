// Steps whose gradients are compressed while backward runs: between ranks that each have their own
// host, and between hosts with several ranks.
#include "models.h"

#include <torch/nn/utils/clip_grad.h>
// This header must come after those of torch.
#include <gmock/gmock.h>

namespace trireme::compressed_step_test {
namespace {

using tests::Data;
using tests::data_of;
using tests::Mlp;
using tests::on_ranks;
using tests::Workers;

struct Way {
  std::string backend;
  std::vector<std::string> hosts;  // By worker; if empty, each worker has its own host.
};
const std::vector<std::string> kCompressions = {"bf16", "fp16", "int8", "topk", "powersgd"};

class CompressedSteps : public ::testing::TestWithParam<Way> {
 protected:
  static WorldOptions world_options() {
    WorldOptions options = tests::world_options();
    options.backend = GetParam().hosts.empty() ? GetParam().backend : "auto";
    return options;
  }
  static bool shares() { return !GetParam().hosts.empty(); }
  // Each bucket has one parameter.
  static DataParallelOptions engine_options(const std::string& compression) {
    return {.share_parameters = shares(),
            .buckets = {.capacity_bytes = 8, .first_bytes = 8},
            .compression = {.name = compression, .rank = 1, .ratio = 0.2}};
  }
};

// The state that a rank ends with.
struct End {
  std::string parameters, kept;
  bool operator==(const End&) const = default;
};
// One replica whose gradients can be spoilt.
struct Trainee {
  std::shared_ptr<Mlp> net = std::make_shared<Mlp>();
  DataParallel replica;
  double spoil_by = 1;

  Trainee(std::shared_ptr<Group> group, const DataParallelOptions& options)
      : replica(std::move(group), net, SGD{.lr = 0.1, .momentum = 0.9}, options) {
    net->second->weight.register_hook(
        [this](const at::Tensor& gradient) { return gradient * spoil_by; });
  }
  Trainee(const Trainee&) = delete;

  StepOutcome step(const Group& group, int number, bool overlapped = true) {
    const Data whole = data_of(12, number), mine = whole.share(group.rank(), group.size());
    const at::Tensor loss = loss_on(*net, mine);
    if (overlapped) return replica.step(loss, mine.size(), whole.size());
    replica.backward(loss, mine.size(), whole.size());
    return replica.step();
  }
  End end() { return {sha256_of(replica.state().parameters), sha256_of(replica.own_state())}; }
};

// The end of each rank after `train(trainee, group)`.
template <typename Train>
std::vector<End> trained(const tests::Groups& groups, const DataParallelOptions& options,
                         Train train) {
  std::vector<End> ends(groups.size());
  on_ranks(groups, [&](Group& group) {
    const auto rank = static_cast<size_t>(group.rank());
    Trainee trainee(groups[rank], options);
    train(trainee, group);
    ends[rank] = trainee.end();
  });
  for (const End& end : ends) EXPECT_EQ(end.parameters, ends[0].parameters);
  return ends;
}

TEST_P(CompressedSteps, EndWithTheSameBitsWhetherGradientsTravelInBackwardOrAfterIt) {
  Workers workers(3, world_options(), GetParam().hosts);
  const auto groups = workers.make_groups();
  for (const std::string& name : kCompressions) {
    const auto steps = [&](bool overlapped) {
      return trained(groups, engine_options(name), [&](Trainee& trainee, Group& group) {
        EXPECT_EQ(trainee.replica.shares_parameters(), shares());
        for (int step = 0; step < 5; ++step)
          EXPECT_TRUE(trainee.step(group, step, overlapped).updated);
      });
    };
    const auto overlapped = steps(true);
    EXPECT_EQ(overlapped, steps(false)) << name;
    EXPECT_EQ(overlapped, steps(true)) << name;
  }
  workers.leave();
}

TEST_P(CompressedSteps, WithReplicasWithoutSamplesDoNotBlock) {
  Workers workers(3, world_options(), GetParam().hosts);
  const auto groups = workers.make_groups();
  for (const std::string& name : kCompressions) {
    trained(groups, engine_options(name), [&](Trainee& trainee, Group& group) {
      for (int step = 0; step < 6; ++step) {
        const bool works = group.rank() == step % 3;
        const Data data = data_of(4, step);
        const auto outcome = trainee.replica.step(
            works ? loss_on(*trainee.net, data) : at::Tensor(), works ? 4 : 0);
        EXPECT_TRUE(outcome.updated);
        EXPECT_EQ(outcome.samples, 4);
      }
    });
  }
  workers.leave();
}

TEST_P(CompressedSteps, ContinueAfterAnOverflowAsIfItHadNotHappened) {
  Workers workers(3, world_options(), GetParam().hosts);
  const auto groups = workers.make_groups();
  for (const std::string name : {"int8", "topk", "powersgd"}) {
    DataParallelOptions options = engine_options(name);
    options.loss_scaling = GradScalerOptions{.initial = 256};
    const auto steps = [&](bool disturbed) {
      return trained(groups, options, [&](Trainee& trainee, Group& group) {
        for (int step = 0; step < 5; ++step) {
          EXPECT_TRUE(trainee.step(group, step).updated);
          if (!disturbed || step % 2 == 0) continue;
          // The first bucket is sound and is sent before the spoilt one.
          if (group.rank() == 1)
            trainee.spoil_by = step == 1 ? std::numeric_limits<double>::infinity() : std::nan("");
          const StepOutcome outcome = trainee.step(group, 100);
          EXPECT_FALSE(outcome.updated);
          EXPECT_TRUE(outcome.nonfinite_gradients);
          trainee.spoil_by = 1;
        }
        EXPECT_EQ(trainee.replica.loss_scale(), disturbed ? 64 : 256);
      });
    };
    EXPECT_EQ(steps(true), steps(false)) << name;
  }
  workers.leave();
}

TEST_P(CompressedSteps, ThatAreNotAcceptedLeaveNoTrace) {
  Workers workers(3, world_options(), GetParam().hosts);
  const auto groups = workers.make_groups();
  for (const std::string name : {"int8", "topk", "powersgd"}) {
    trained(groups, engine_options(name), [&](Trainee& undisturbed, Group& group) {
      bool accepts = true;
      DataParallelOptions options = engine_options(name);
      options.accept = [&accepts](double, double) { return accepts; };
      Trainee choosy(groups[static_cast<size_t>(group.rank())], options);
      for (int step = 0; step < 4; ++step) {
        EXPECT_TRUE(undisturbed.step(group, step).updated);
        EXPECT_TRUE(choosy.step(group, step).updated);
        accepts = false;
        EXPECT_FALSE(choosy.step(group, 100 + step).updated);
        accepts = true;
      }
      EXPECT_EQ(choosy.end(), undisturbed.end()) << name;
    });
  }
  workers.leave();
}

TEST_P(CompressedSteps, AreClippedByTheNormOfAllReplicasGradients) {
  constexpr double kClip = 0.05;
  Mlp expected;
  torch::optim::SGD optimizer(expected.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  for (int step = 0; step < 4; ++step) {
    optimizer.zero_grad();
    loss_on(expected, data_of(12, step)).backward();
    torch::nn::utils::clip_grad_norm_(expected.parameters(), kClip);
    optimizer.step();
  }
  Workers workers(3, world_options(), GetParam().hosts);
  const auto groups = workers.make_groups();
  on_ranks(groups, [&](Group& group) {
    DataParallelOptions options = engine_options("topk");
    options.compression.ratio = 1;  // All values travel, as floats.
    options.clip_norm = kClip;
    Trainee trainee(groups[static_cast<size_t>(group.rank())], options);
    for (int step = 0; step < 4; ++step) EXPECT_GT(trainee.step(group, step).gradient_norm, kClip);
    EXPECT_LT(tests::difference(*trainee.net, expected), 1e-6);
  });
  workers.leave();
}

TEST_P(CompressedSteps, ContinueFromTheirStateWithTheSameBits) {
  Workers workers(3, world_options(), GetParam().hosts);
  const auto groups = workers.make_groups();
  for (const std::string name : {"int8", "topk", "powersgd"}) {
    const auto whole = trained(groups, engine_options(name), [](Trainee& trainee, Group& group) {
      for (int step = 0; step < 5; ++step) trainee.step(group, step);
    });
    const auto resumed = trained(groups, engine_options(name), [&](Trainee& last, Group& group) {
      Trainee first(groups[static_cast<size_t>(group.rank())], engine_options(name));
      for (int step = 0; step < 3; ++step) first.step(group, step);
      last.replica.modify_parameters([&] {
        for (size_t p = 0; p < 4; ++p) last.net->parameters()[p].copy_(first.net->parameters()[p]);
      });
      load_state(last.replica.optimizer(), last.replica.updated_parameters(),
                 state_of(first.replica.optimizer(), first.replica.updated_parameters()));
      const auto kept = first.replica.own_state(), empty = last.replica.own_state();
      ASSERT_EQ(kept.size(), empty.size());
      for (size_t i = 0; i < kept.size(); ++i) empty[i].tensor.copy_(kept[i].tensor);
      for (int step = 3; step < 5; ++step) last.step(group, step);
    });
    EXPECT_EQ(resumed, whole) << name;
  }
  workers.leave();
}

TEST(CompressedStep, EndsForAllRanksBeforeTheDeadlineIfOneFailsInBackward) {
  WorldOptions options = tests::world_options(Milliseconds(60000));
  options.backend = "tcp";
  Workers workers(3, options);
  const auto groups = workers.make_groups();
  const auto start = std::chrono::steady_clock::now();
  const auto endings = tests::endings_of(groups, [&](Group& group) {
    Trainee trainee(
        groups[static_cast<size_t>(group.rank())],
        {.buckets = {.capacity_bytes = 8, .first_bytes = 8}, .compression = {.name = "int8"}});
    for (int step = 0; step < 3; ++step) trainee.step(group, step);
    // The buckets of the second layer are on their way by then.
    trainee.net->first->weight.register_hook([&](const at::Tensor& gradient) -> at::Tensor {
      if (group.rank() == 1) throw Error(ErrorCode::internal, "test", "no more", "nothing");
      return gradient;
    });
    trainee.step(group, 3);
  });
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  EXPECT_EQ(endings[1].code, ErrorCode::internal);
  for (const int rank : {0, 2}) {
    EXPECT_TRUE(endings[static_cast<size_t>(rank)].failed);
    EXPECT_EQ(endings[static_cast<size_t>(rank)].code, ErrorCode::peer_lost)
        << endings[static_cast<size_t>(rank)].what;
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, CompressedSteps,
                         ::testing::Values(Way{"tcp", {}}, Way{"gloo", {}},
                                           Way{"hosts", {"a", "a", "b"}}),
                         [](const auto& each) { return each.param.backend; });

}  // namespace
}  // namespace trireme::compressed_step_test
