// With virtual shards any number of ranks computes the same bits.
#include <ATen/Parallel.h>

#include <trireme/base/hash.h>
#include <trireme/parallel/reproducible_exchange.h>
#include <trireme/tensor/replica_random.h>

#include "../base/expect_error.h"
#include "models.h"
// This header must come after those of torch.
#include <gmock/gmock.h>

namespace trireme::reproducible_exchange_test {
namespace {

using ::testing::HasSubstr;
using tests::Data;
using tests::data_of;
using tests::on_ranks;
using tests::thread_groups;

constexpr int kShards = 8;

// A float32 net with dropout: its sums depend on their order. `rare` has a gradient only if the
// first sample makes it so.
struct Net : torch::nn::Module {
  Net()
      : first(register_module("first", torch::nn::Linear(6, 33))),
        second(register_module("second", torch::nn::Linear(33, 4))),
        rare(register_parameter("rare", at::zeros({5}))) {
    tests::fill(*this);
  }
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor logits = second(at::dropout(at::tanh(first(x)), 0.4, /*train=*/true));
    return x[0][0].item<float>() > 1 ? logits * (1 + rare.sum()) : logits;
  }
  torch::nn::Linear first, second;
  at::Tensor rare;
};

struct Case {
  std::string name;
  OptimizerFactory optimizer = SGD{.lr = 0.1, .momentum = 0.9};
  DataParallelOptions options = {};
  int64_t samples = 37;
  int64_t known_total = 37;  // 0 means unknown.
  at::ScalarType dtype = at::kFloat;
};

struct Result {
  std::string parameters;
  std::vector<double> losses, norms;
  bool operator==(const Result&) const = default;
};

void compute_shards(DataParallel& replica, Net& net, ReplicaRandom& random, const Data& data,
                    int step, int64_t total) {
  const auto [first, last] = replica.shards();
  for (int shard = first; shard < last; ++shard) {
    const auto [from, to] = plan::DataPlan::share(data.size(), shard, kShards);
    random.reseed(mix64(7, static_cast<uint64_t>(step), static_cast<uint64_t>(shard)));
    if (from < to) {
      const Data part{data.x.narrow(0, from, to - from).clone(),
                      data.y.narrow(0, from, to - from).clone()};
      replica.backward(tests::loss_on(net, part), to - from, total);
    }
    replica.end_shard();
  }
}

// The end of every rank after some steps; the second half of them has another number of ranks.
Result train(const Case& how, int ranks, int later_ranks) {
  Result result;
  std::vector<at::Tensor> kept;
  OptimizerState state;
  std::vector<std::string> digests(static_cast<size_t>(later_ranks));
  for (const auto& [world_size, from, to] :
       {std::tuple{ranks, 0, 5}, std::tuple{later_ranks, 5, 10}}) {
    const auto groups = thread_groups(world_size);
    on_ranks(groups, [&, from = from, to = to](Group& group) {
      at::set_num_threads(1);
      ReplicaRandom random(1);
      auto net = std::make_shared<Net>();
      net->to(how.dtype);
      DataParallelOptions options = how.options;
      options.virtual_shards = kShards;
      DataParallel replica(groups[static_cast<size_t>(group.rank())], net, how.optimizer, options);
      const auto parameters = net->parameters();
      if (from > 0) {
        replica.modify_parameters([&] {
          for (size_t i = 0; i < kept.size(); ++i) parameters[i].copy_(kept[i]);
        });
        load_state(replica.optimizer(), replica.updated_parameters(), state);
      }
      for (int step = from; step < to; ++step) {
        const Data data = data_of(how.samples, step, how.dtype);
        compute_shards(replica, *net, random, data, step, how.known_total);
        const StepOutcome outcome = replica.step();
        EXPECT_TRUE(outcome.updated);
        EXPECT_EQ(outcome.samples, how.samples);
        if (group.rank() > 0) continue;
        result.losses.push_back(outcome.loss);
        result.norms.push_back(outcome.gradient_norm);
      }
      if (to == 10)
        digests[static_cast<size_t>(group.rank())] = sha256_of(replica.state().parameters);
      group.barrier();
      if (group.rank() > 0 || to == 10) return;
      for (const auto& parameter : parameters) kept.push_back(parameter.detach().clone());
      state = state_of(replica.optimizer(), replica.updated_parameters());
      for (auto& [name, tensor] : state.tensors) tensor = tensor.clone();
    });
  }
  for (const std::string& digest : digests) EXPECT_EQ(digest, digests[0]) << "ranks differ";
  result.parameters = digests[0];
  return result;
}

std::vector<Case> cases() {
  Case plain{.name = "Momentum"};
  Case adam{.name = "AdamWithClipping", .optimizer = Adam{.lr = 0.01}};
  adam.options.clip_norm = 0.5;
  Case small{.name = "FewerSamplesThanShards", .samples = 5, .known_total = 5};
  Case unknown{.name = "UnknownTotal", .known_total = 0};
  Case buckets{.name = "ManySmallBuckets"};
  buckets.options.buckets = {.capacity_bytes = 64, .first_bytes = 64};
  buckets.options.gradient_norm = true;
  Case lamb{.name = "Lamb", .optimizer = Lamb{.lr = 0.01}};
  Case masters{.name = "Bfloat16WithMasters"};
  masters.dtype = at::kBFloat16;
  return {plain, adam, small, unknown, buckets, lamb, masters};
}

class Reproducible : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Cases, Reproducible, ::testing::ValuesIn(cases()),
                         [](const auto& with) { return with.param.name; });

TEST_P(Reproducible, EveryNumberOfRanksEndsWithTheSameBits) {
  const Result alone = train(GetParam(), 1, 1);
  for (const int ranks : {2, 3, 4, 8})
    EXPECT_EQ(train(GetParam(), ranks, ranks), alone) << ranks << " ranks";
}

TEST_P(Reproducible, ANumberOfRanksThatChangesEndsWithTheSameBits) {
  const Result alone = train(GetParam(), 1, 1);
  EXPECT_EQ(train(GetParam(), 3, 2), alone);
  EXPECT_EQ(train(GetParam(), 2, 10), alone) << "two of the ten ranks have no shards";
}

TEST(ReproducibleExchange, IsTheMeanOverTheGlobalBatch) {
  const Data data = data_of(37, 0, at::kFloat);
  auto whole = std::make_shared<tests::Mlp>();
  whole->to(at::kFloat);
  const at::Tensor loss = tests::loss_on(*whole, data);
  loss.backward();
  const auto groups = thread_groups(3);
  on_ranks(groups, [&](Group& group) {
    auto net = std::make_shared<tests::Mlp>();
    net->to(at::kFloat);
    DataParallelOptions options;
    options.virtual_shards = kShards;
    DataParallel replica(groups[static_cast<size_t>(group.rank())], net, tests::recording(),
                         options);
    const auto [first, last] = replica.shards();
    for (int shard = first; shard < last; ++shard) {
      const Data part = data.share(shard, kShards);
      replica.backward(tests::loss_on(*net, part), part.size(), 37);
      replica.end_shard();
    }
    const StepOutcome outcome = replica.step();
    EXPECT_NEAR(outcome.loss, loss.item<double>(), 1e-6);
    EXPECT_GT(outcome.bytes_sent, 0);
    const auto& gradients = tests::recorded(replica);
    const auto expected = whole->parameters();
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_LT(tests::difference(gradients[i], expected[i].grad()), 1e-6);
  });
}

TEST(ReproducibleExchange, ANonFiniteLossIsKnownOnEveryRankAndChangesNothing) {
  const auto groups = thread_groups(2);
  on_ranks(groups, [&](Group& group) {
    auto net = std::make_shared<tests::Mlp>();
    const std::string before = sha256_of(state_of(*net).parameters);
    DataParallelOptions options;
    options.virtual_shards = kShards;
    DataParallel replica(groups[static_cast<size_t>(group.rank())], net, SGD{.lr = 0.1}, options);
    const auto [first, last] = replica.shards();
    for (int shard = first; shard < last; ++shard) {
      const Data part = data_of(16).share(shard, kShards);
      replica.backward(tests::loss_on(*net, part) * (shard == 6 ? std::nan("") : 1.0), part.size(),
                       16);
      replica.end_shard();
    }
    const StepOutcome outcome = replica.step();
    EXPECT_THAT(outcome.nonfinite_ranks, ::testing::ElementsAre(1));
    EXPECT_FALSE(outcome.updated);
    EXPECT_EQ(sha256_of(replica.state().parameters), before);
  });
}

DataParallel alone(DataParallelOptions options) {
  return {thread_groups(1)[0], std::make_shared<tests::Mlp>(), SGD{.lr = 0.1}, options};
}
DataParallelOptions sharded() {
  DataParallelOptions options;
  options.virtual_shards = kShards;
  return options;
}

TEST(ReproducibleExchange, RefusesAStepWithoutAllItsShards) {
  DataParallel replica = alone(sharded());
  replica.end_shard();
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { replica.step(); }),
              HasSubstr("1 of 8 shards"));
  for (int shard = 1; shard < kShards; ++shard) replica.end_shard();
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { replica.end_shard(); }),
              HasSubstr("call 9 of end_shard()"));
}

TEST(ReproducibleExchange, RefusesOptionsThatDependOnTheNumberOfRanks) {
  DataParallelOptions options = sharded();
  options.compression.name = "bf16";
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { alone(options); }),
              HasSubstr("compression bf16"));
  options = sharded();
  options.local.steps = 4;
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { alone(options); }),
              HasSubstr("4 local steps"));
  DataParallel replica = alone(sharded());
  EXPECT_THAT(
      message_of(ErrorCode::unsupported, [&] { replica.step([] { return at::zeros({}); }, 1); }),
      HasSubstr("closure"));
  DataParallel without = alone({});
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { without.end_shard(); }),
              HasSubstr("no virtual shards"));
}

TEST(ReproducibleExchange, ContinuesOnlyWithTheSameShardsAndThreads) {
  at::set_num_threads(1);
  DataParallel replica = alone(sharded());
  Json counters = replica.counters();
  EXPECT_NO_THROW(replica.load_counters(counters));
  counters["exchange"]["threads"] = 2;
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { replica.load_counters(counters); }),
              ::testing::AllOf(HasSubstr("8 virtual shards and 2 threads"),
                               HasSubstr("device.threads=2")));
  EXPECT_NO_THROW(replica.load_counters(Json::object()));  // A run without shards has no counters.
}

}  // namespace
}  // namespace trireme::reproducible_exchange_test
