// The state with which a strategy of one's own begins, and which it keeps and gives on.
#include "engines.h"
// This header must come after those of torch.
#include <gmock/gmock.h>

#include "../base/expect_error.h"
#include "all_reduced.h"

namespace trireme::replica_engine_state_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using tests::AllReduced;
using tests::data_of;
using tests::load;
using tests::Mlp;
using tests::names_in;
using tests::on_ranks;
using tests::setting_of;
using tests::take_step;
using tests::thread_groups;

std::shared_ptr<Group> handle(const tests::Groups& groups, const Group& group) {
  return groups[static_cast<size_t>(group.rank())];
}

class OwnEngineState : public ::testing::TestWithParam<int> {
 protected:
  int size() const { return GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(WorldSizes, OwnEngineState, ::testing::Values(1, 2, 3));

struct Counting : Mlp {
  at::Tensor seen = register_buffer("seen", at::zeros({2}, at::kDouble));
};

TEST_P(OwnEngineState, BeginsWithRankZerosModel) {
  const auto groups = thread_groups(size());
  on_ranks(groups, [&](Group& group) {
    const auto net = std::make_shared<Counting>();
    {
      const at::NoGradGuard no_grad;
      net->first->weight.fill_(group.rank() + 1);
      net->seen.fill_(group.rank() + 1);
    }
    const AllReduced engine(setting_of(handle(groups, group), net));
    EXPECT_TRUE(net->first->weight.eq(1).all().item<bool>());
    EXPECT_TRUE(net->seen.eq(1).all().item<bool>());
  });
}

TEST_P(OwnEngineState, MakesBuffersRankZerosBeforeTheyAreRead) {
  const auto groups = thread_groups(size());
  on_ranks(groups, [&](Group& group) {
    const auto net = std::make_shared<Counting>();
    AllReduced engine(setting_of(handle(groups, group), net));
    net->seen.fill_(group.rank() + 5);
    take_step(engine, data_of(6));
    EXPECT_TRUE(net->seen.eq(group.rank() + 5).all().item<bool>()) << "steps leave them alone";
    engine.prepare_to_read();
    EXPECT_TRUE(net->seen.eq(5).all().item<bool>());
  });
}

TEST_P(OwnEngineState, HasAPlanWithItsNameAndItsRanks) {
  const auto groups = thread_groups(size());
  std::vector<std::string> digests(static_cast<size_t>(size()));
  on_ranks(groups, [&](Group& group) {
    EngineSetting setting = setting_of(handle(groups, group), std::make_shared<Mlp>());
    setting.strategy = "all_reduced";
    const AllReduced engine(setting);
    EXPECT_EQ(engine.plan().engine, "all_reduced");
    EXPECT_EQ(engine.plan().ranks(), size());
    EXPECT_EQ(engine.plan().parameters.size(), 4U);
    EXPECT_NO_THROW(check(engine.plan()));
    EXPECT_FALSE(engine.shares_parameters());
    digests[static_cast<size_t>(group.rank())] = engine.plan().digest();
  });
  EXPECT_THAT(digests, ::testing::Each(digests[0]));
}

// Keeps the number of its updates, the same on every rank, and the sum of its own gradients. Both
// have a part in the next update.
class Remembering : public AllReduced {
 public:
  explicit Remembering(const EngineSetting& setting) : AllReduced(setting) {}

 protected:
  void exchange() override {
    const at::Tensor gradient = parameters()[0].tensor.grad();
    next_ = gradient.defined() ? sum_ + gradient : sum_.clone();
    of_all_ = next_.clone();
    group().all_reduce(of_all_);
    AllReduced::exchange();
  }
  void update() override {
    sum_.copy_(next_);
    updates_.add_(1);
    AllReduced::update();
    parameters()[0].tensor.sub_(of_all_, 0.01 * updates_.item<double>());
  }
  StateView own_state() override {
    return {whole("updates", updates_, StateKind::common), whole("sum", sum_, StateKind::rank)};
  }

 private:
  at::Tensor updates_ = at::zeros({}, at::kDouble);
  at::Tensor sum_ = at::zeros_like(parameters()[0].tensor);
  at::Tensor next_, of_all_;  // Of this step alone.
};

TEST_P(OwnEngineState, ShowsModelOptimizerAndItsOwnState) {
  const auto groups = thread_groups(size());
  on_ranks(groups, [&](Group& group) {
    const auto net = std::make_shared<Counting>();
    Remembering engine(setting_of(handle(groups, group), net));
    take_step(engine, data_of(6));
    const EngineState state = engine.state();
    EXPECT_THAT(names_in(state.tensors, StateKind::parameter),
                ElementsAre("first.weight", "first.bias", "second.weight", "second.bias"));
    EXPECT_THAT(names_in(state.tensors, StateKind::buffer), ElementsAre("seen"));
    EXPECT_THAT(names_in(state.tensors, StateKind::optimizer),
                ElementsAre("momentum_buffer/first.weight", "momentum_buffer/first.bias",
                            "momentum_buffer/second.weight", "momentum_buffer/second.bias"));
    EXPECT_THAT(names_in(state.tensors, StateKind::common), ElementsAre("updates"));
    EXPECT_THAT(names_in(state.tensors, StateKind::rank), ElementsAre("sum"));
    EXPECT_EQ(state.tensors.size(), 11U);
    EXPECT_TRUE(state.tensors[0].tensor.is_same(net->first->weight)) << "no copies";
  });
}

TEST_P(OwnEngineState, ContinuesFromTheStateOfAnotherBitForBit) {
  for (const OptimizerFactory& optimizer :
       std::vector<OptimizerFactory>{SGD{.lr = 0.1, .momentum = 0.9}, Adam{.lr = 0.01}}) {
    const auto groups = thread_groups(size()), next_groups = thread_groups(size());
    on_ranks(groups, [&](Group& group) {
      const auto net = std::make_shared<Mlp>(), next_net = std::make_shared<Mlp>();
      Remembering engine(setting_of(handle(groups, group), net, optimizer));
      for (int step = 0; step < 3; ++step) take_step(engine, data_of(9, step));
      Remembering next(setting_of(handle(next_groups, group), next_net, optimizer));
      load(next, tests::copy_of(engine.state()), group.rank());
      for (int step = 3; step < 5; ++step) {
        const double loss = take_step(engine, data_of(9, step)).loss;
        EXPECT_EQ(take_step(next, data_of(9, step)).loss, loss);
      }
      EXPECT_TRUE(tests::same_bits(state_of(*next_net).parameters, state_of(*net).parameters));
    });
  }
}

// A rank is lost while all exchange, or the update itself fails.
class Failing : public ReplicaEngine {
 public:
  Failing(const EngineSetting& setting, std::string where)
      : ReplicaEngine(setting), where_(std::move(where)) {}

 protected:
  void exchange() override { fail_in("exchange"); }
  void update() override { fail_in("update"); }

 private:
  void fail_in(const std::string& place) const {
    if (place == where_) throw Error(ErrorCode::peer_lost, "test", "a rank was lost");
  }
  const std::string where_;
};

TEST_P(OwnEngineState, IsTornOnlyAfterAnErrorInsideTheUpdate) {
  for (const std::string where : {"exchange", "update", "nowhere"}) {
    const auto groups = thread_groups(size());
    on_ranks(groups, [&](Group& group) {
      Failing engine(setting_of(handle(groups, group), std::make_shared<Mlp>()), where);
      EXPECT_FALSE(engine.is_torn());
      if (where == "nowhere")
        take_step(engine, data_of(6));
      else
        message_of(ErrorCode::peer_lost, [&] { take_step(engine, data_of(6)); });
      EXPECT_EQ(engine.is_torn(), where == "update") << where;
    });
  }
}

struct Difference {
  std::string name;
  double rate = 0.1;
  int64_t hidden = 10;
};

TEST(OwnEngines, RefusesAnotherModelOrOptimizerOnEveryRank) {
  for (const Difference& difference : {Difference{"optimizer.groups.0.lr", 0.2},
                                       Difference{"model.parameter first.bias", 0.1, 12}}) {
    const auto groups = thread_groups(3);
    std::vector<std::string> errors(3);
    on_ranks(groups, [&](Group& group) {
      const Difference mine = group.rank() == 2 ? difference : Difference{};
      const EngineSetting setting = setting_of(
          handle(groups, group), std::make_shared<Mlp>(6, mine.hidden, 4), SGD{.lr = mine.rate});
      errors[static_cast<size_t>(group.rank())] =
          message_of(ErrorCode::invalid_argument, [&] { AllReduced engine(setting); });
    });
    for (const std::string& error : errors)
      EXPECT_THAT(error, AllOf(HasSubstr(difference.name), HasSubstr("on rank 2")));
  }
}

}  // namespace
}  // namespace trireme::replica_engine_state_test
