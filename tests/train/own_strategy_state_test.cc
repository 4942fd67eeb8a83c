// The state of strategies of one's own in checkpoints: resumed, on other ranks, by other
// strategies.
#include "own_strategies.h"
// This header must come after those of torch.
#include <gmock/gmock.h>

#include <trireme/checkpoint/folder.h>
#include <cmath>
#include <cstring>

#include "../base/expect_error.h"

namespace trireme::own_strategy_state_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using tests::clouds;
using tests::fit;
using tests::Folder;
using tests::job;
using tests::journal;
using tests::kHalf;

class OwnStrategyState : public tests::OwnStrategies {};

// 90 samples in batches of 16 are 6 steps an epoch: step 4 is in the middle of the first epoch,
// and step 9 in the middle of the second.
TEST_F(OwnStrategyState, ResumesBitForBitOnTheSameRanks) {
  const auto the_job = job<tests::DropoutClassifier>(rate());
  for (const int replicas : {1, 2, 3}) {
    for (const std::string writers : {"hosts", "ranks"}) {
      const Folder undisturbed, interrupted;
      const auto run = [&](const Folder& folder, int64_t steps) {
        TrainerOptions own = options_in(folder, steps, replicas);
        own.checkpoint.writers = writers;
        return fit(own, the_job, clouds(90));
      };
      const Report whole = run(undisturbed, 12);
      run(interrupted, 4);
      run(interrupted, 9);
      const Report last = run(interrupted, 12);
      EXPECT_EQ(last.resumed_from_step, 9);
      EXPECT_EQ(last.steps, 12);
      EXPECT_EQ(last.loss_history, whole.loss_history);
      EXPECT_EQ(last.parameters_sha256, whole.parameters_sha256);
    }
  }
}

TEST_F(OwnStrategyState, ResumesBitForBitOnWorkers) {
  const auto the_job = job(rate());
  const Folder undisturbed, interrupted;
  const auto run = [&](const Folder& folder, int64_t steps) {
    Report of_first;
    tests::Workers workers(2);
    workers.on_each([&](World& world) {
      const Report report = Trainer(world, options_in(folder, steps)).fit(the_job, clouds(90));
      if (world.worker() == 0) of_first = report;
    });
    workers.leave();
    return of_first;
  };
  const Report whole = run(undisturbed, 12);
  run(interrupted, 7);
  const Report last = run(interrupted, 12);
  EXPECT_EQ(last.resumed_from_step, 7);
  EXPECT_EQ(last.world_size, 2);
  EXPECT_EQ(last.loss_history, whole.loss_history);
  EXPECT_EQ(last.parameters_sha256, whole.parameters_sha256);
}

// Without its state the run goes on otherwise, so the tests above can fail.
TEST_F(OwnStrategyState, GoesOnOtherwiseWithoutItsState) {
  const Folder undisturbed, interrupted;
  const Report whole = fit(options_in(undisturbed, 12, 2), job(rate()), clouds(90));
  const Report first = fit(options_in(interrupted, 5, 2), job(rate()), clouds(90));
  {
    const checkpoint::Saved saved = checkpoint::open_checkpoint(first.checkpoint);
    checkpoint::Folder(interrupted.path())
        .save(saved.manifest, saved.model->tensors(), std::vector<checkpoint::TensorView>());
  }
  const Report last = fit(options_in(interrupted, 12, 2), job(rate()), clouds(90));
  EXPECT_EQ(last.resumed_from_step, 5);
  EXPECT_NE(last.parameters_sha256, whole.parameters_sha256);
}

using Tensors = std::map<std::string, at::Tensor>;
Tensors read_own(const std::string& checkpoint) {
  const checkpoint::Saved saved = checkpoint::open_checkpoint(checkpoint);
  Tensors tensors;
  for (const auto& view : saved.optimizer->tensors()) {
    EXPECT_EQ(view.spec.dtype, plan::DType::float64) << view.spec.name;
    at::Tensor tensor = at::empty(view.spec.shape, at::kDouble);
    EXPECT_EQ(tensor.nbytes(), view.bytes.size());
    std::memcpy(tensor.mutable_data_ptr(), view.bytes.data(), view.bytes.size());
    tensors.emplace(view.spec.name, tensor);
  }
  return tensors;
}
const std::vector<std::string> kParameters = {"in.weight", "in.bias", "out.weight", "out.bias"};

struct Ranks {
  int before, after;
};
class OwnStateOnOtherRanks : public OwnStrategyState,
                             public ::testing::WithParamInterface<Ranks> {};
INSTANTIATE_TEST_SUITE_P(Ranks, OwnStateOnOtherRanks,
                         ::testing::Values(Ranks{2, 2}, Ranks{3, 3}, Ranks{2, 3}, Ranks{3, 2},
                                           Ranks{2, 1}, Ranks{1, 2}),
                         [](const auto& each) {
                           return fmt::format("from_{}_to_{}", each.param.before,
                                              each.param.after);
                         });

TEST_P(OwnStateOnOtherRanks, TakesItsStateAsTheKindsSay) {
  const auto [before, after] = GetParam();
  const Folder folder;
  const Report first = fit(options_in(folder, 5, before), job(rate()), clouds(90));
  const Tensors saved = read_own(first.checkpoint);
  EXPECT_EQ(saved.size(), kParameters.size() * static_cast<size_t>(2 * before + 1));
  journal().begin_anew();
  // Nothing is left to train, so the state stays as it was loaded.
  const Report second = fit(options_in(folder, 5, after), job(rate()), clouds(90));
  EXPECT_EQ(second.resumed_from_step, 5);
  EXPECT_EQ(second.parameters_sha256, first.parameters_sha256);
  auto loaded = journal().loaded();
  ASSERT_EQ(loaded.size(), static_cast<size_t>(after));
  for (const std::string& name : kParameters) {
    at::Tensor sum = at::zeros_like(saved.at("rank0/rest/" + name)), sum_after = sum.clone();
    for (int rank = 0; rank < before; ++rank)
      sum += saved.at(fmt::format("rank{}/rest/{}", rank, name));
    for (int rank = 0; rank < after; ++rank) {
      const Tensors& own = loaded[rank];
      const bool same = before == after;
      const std::string prefix = fmt::format("rank{}/", same ? rank : 0);
      EXPECT_TRUE(own.at("momentum/" + name).equal(saved.at(prefix + "momentum/" + name)));
      EXPECT_TRUE(own.at("average/" + name).equal(saved.at("engine/average/" + name)));
      const at::Tensor& rest = own.at("rest/" + name);
      if (same)
        EXPECT_TRUE(rest.equal(saved.at(prefix + "rest/" + name)));
      else
        EXPECT_LT((rest - sum / after).abs().max().item<double>(), 1e-15);
      sum_after += rest;
    }
    EXPECT_LT((sum_after - sum).abs().max().item<double>(), 1e-15) << name;
    EXPECT_GT(sum.abs().max().item<double>(), 1e-6) << "nothing was kept back";
    if (before > 1) {
      EXPECT_FALSE(saved.at("rank0/momentum/" + name).equal(saved.at("rank1/momentum/" + name)))
          << "momenta of different ranks are alike";
    }
  }
}

TEST_P(OwnStateOnOtherRanks, TrainsOn) {
  const auto [before, after] = GetParam();
  const Folder folder;
  fit(options_in(folder, 5, before), job(rate()), clouds(90));
  const Report report = fit(options_in(folder, 12, after), job(rate()), clouds(90));
  EXPECT_EQ(report.resumed_from_step, 5);
  EXPECT_EQ(report.steps, 12);
  EXPECT_EQ(report.world_size, after);
  EXPECT_TRUE(report.samples.exactly_once());
  for (const double loss : report.loss_history) EXPECT_TRUE(std::isfinite(loss));
}

// Keeps signs in types that groups cannot add up. The last signs have a part in the next update.
class SignEngine : public tests::AllReduced {
 public:
  explicit SignEngine(const EngineSetting& setting) : tests::AllReduced(setting) {}

 protected:
  void update() override {
    const at::Tensor& parameter = parameters()[0].tensor;
    parameter.sub_(positive_.to(at::kDouble) + steps_.to(at::kDouble), 0.001);
    tests::AllReduced::update();
    positive_.copy_(parameter.gt(0));
    steps_.add_(1);
  }
  StateView own_state() override {
    return {whole("positive", positive_, StateKind::common),
            whole("steps", steps_, StateKind::rank)};
  }

 private:
  at::Tensor positive_ = at::zeros(parameters()[0].tensor.sizes(), at::kBool);
  at::Tensor steps_ = at::zeros({}, at::kChar);
};

TEST_F(OwnStrategyState, MayHaveAnyTypeThatACheckpointStores) {
  static std::once_flag once;
  std::call_once(once, [] { register_strategy("own_signs", {make_engine<SignEngine>}); });
  for (const int replicas : {1, 2}) {
    const Folder undisturbed, interrupted;
    const auto in = [&](const Folder& folder, int64_t steps) {
      return options_in(folder, steps, replicas, "own_signs");
    };
    const Report whole_run = fit(in(undisturbed, 7), tests::job(rate()), clouds(90));
    fit(in(interrupted, 3), tests::job(rate()), clouds(90));
    const Report resumed = fit(in(interrupted, 7), tests::job(rate()), clouds(90));
    EXPECT_EQ(resumed.resumed_from_step, 3);
    EXPECT_EQ(resumed.parameters_sha256, whole_run.parameters_sha256) << replicas;
  }
}

TEST_F(OwnStrategyState, TakesACheckpointOfAnotherStrategyAndWarnsThatItsOwnStateStartsAnew) {
  const Job the_job = job(SGD{.lr = 0.02, .momentum = 0.9});
  const Folder folder;
  const Report first = fit(options_in(folder, 5, 2, "mirrored"), the_job, clouds(90));
  ::testing::internal::CaptureStderr();
  const Report second = fit(options_in(folder, 5, 2), the_job, clouds(90));
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(second.resumed_from_step, 5);
  EXPECT_EQ(second.parameters_sha256, first.parameters_sha256);
  EXPECT_THAT(said, AllOf(HasSubstr("warning"), HasSubstr("'momentum/in.weight'"),
                          HasSubstr("start anew")));
  for (auto& [rank, own] : journal().loaded())
    for (const auto& [name, tensor] : own)
      EXPECT_EQ(tensor.count_nonzero().item<int64_t>(), 0) << name;
  EXPECT_EQ(fit(options_in(folder, 9, 2), the_job, clouds(90)).steps, 9);
}

TEST_F(OwnStrategyState, WarnsOfNothingWhereItsStateIsThere) {
  const Folder folder;
  fit(options_in(folder, 5, 2), job(rate()), clouds(90));
  ::testing::internal::CaptureStderr();
  fit(options_in(folder, 9, 3), job(rate()), clouds(90));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), Not(HasSubstr("start anew")));
}

TEST_F(OwnStrategyState, LeavesACheckpointThatOtherStrategiesTake) {
  for (const int replicas : {1, 2}) {
    const std::string other = replicas == 1 ? "one_device" : "mirrored";
    const Folder folder;
    const Report first = fit(options_in(folder, 5, 3), job(rate()), clouds(90), clouds(30, 2));
    const Report second =
        fit(options_in(folder, 5, replicas, other), job(rate()), clouds(90), clouds(30, 2));
    EXPECT_EQ(second.resumed_from_step, 5);
    EXPECT_EQ(second.strategy, other);
    EXPECT_EQ(second.parameters_sha256, first.parameters_sha256);
    EXPECT_NEAR(second.eval->loss, first.eval->loss, 1e-12);
    const Report last = fit(options_in(folder, 12, replicas, other), job(rate()), clouds(90));
    EXPECT_EQ(last.steps, 12);
    EXPECT_TRUE(last.samples.exactly_once());
  }
}

TEST_F(OwnStrategyState, WhoseSlicesLeaveAHoleIsRefusedBeforeItTrains) {
  for (const int replicas : {1, 2}) {
    EXPECT_EQ(fit(options(3, replicas, kHalf), job(), clouds(90)).steps, 3);
    const Folder folder;
    EXPECT_THAT(
        message_of(ErrorCode::internal,
                   [&] { fit(options_in(folder, 3, replicas, kHalf), job(), clouds(90)); }),
        HasSubstr("no slice holds engine/center[0:2, 0:6] of [4, 6]"));
    EXPECT_FALSE(checkpoint::has_checkpoints(folder.path()));
  }
}

}  // namespace
}  // namespace trireme::own_strategy_state_test
