#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/base/hash.h>
#include <trireme/parallel/compression/compressor.h>

#include "models.h"

namespace trireme::tests::compression_test {
namespace {

using ::testing::HasSubstr;

// A matrix, a vector, a small matrix and a convolution, as one bucket.
CompressedBucket bucket(at::ScalarType dtype = at::kFloat) {
  CompressedBucket made;
  const std::vector<std::pair<std::string, std::vector<int64_t>>> tensors = {
      {"large", {40, 30}}, {"bias", {30}}, {"small", {2, 3}}, {"conv", {8, 4, 3, 3}}};
  for (const auto& [name, shape] : tensors) {
    made.parameters.push_back({name, shape, plan::DType::float32, true});
    made.offsets.push_back(made.elements);
    made.elements += made.parameters.back().elements();
  }
  made.dtype = dtype;
  return made;
}

at::Tensor gradient(int64_t elements, int rank, int step, at::ScalarType dtype = at::kFloat) {
  const auto generator = at::detail::createCPUGenerator(
      mix64(3, static_cast<uint64_t>(rank), static_cast<uint64_t>(step)));
  return at::randn({elements}, generator, at::kDouble).mul(1e-3).to(dtype);
}

at::Tensor sum_of(int64_t elements, int ranks, int step) {
  at::Tensor sum = at::zeros({elements}, at::kDouble);
  for (int rank = 0; rank < ranks; ++rank) sum += gradient(elements, rank, step);
  return sum;
}

double relative(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).norm().item<double>() /
         b.to(at::kDouble).norm().item<double>();
}

struct Ran {
  std::vector<std::vector<at::Tensor>> results;  // [rank][step]
  std::vector<int64_t> bytes;                    // By rank: the bytes of the last step.
  std::vector<StateView> states;
};
// Runs `steps` reductions; `input(rank, step)` gives each rank's gradients.
template <typename Input>
Ran run(const CompressionOptions& options, int ranks, int steps, Input input,
        const CompressedBucket& layout = bucket()) {
  Ran ran{std::vector<std::vector<at::Tensor>>(static_cast<size_t>(ranks)),
          std::vector<int64_t>(static_cast<size_t>(ranks)),
          std::vector<StateView>(static_cast<size_t>(ranks))};
  const auto groups = thread_groups(ranks);
  on_ranks(groups, [&](Group& group) {
    const auto rank = static_cast<size_t>(group.rank());
    const auto compressor = make_compressor(groups[rank], layout, options);
    for (int step = 0; step < steps; ++step) {
      const at::Tensor flat = input(group.rank(), step);
      const Traffic before = groups[rank]->traffic();
      compressor->all_reduce(flat);
      ran.bytes[rank] = (groups[rank]->traffic() - before).bytes_sent;
      compressor->commit();
      ran.results[rank].push_back(flat);
    }
    ran.states[rank] = compressor->state();
  });
  return ran;
}
Ran run(const CompressionOptions& options, int ranks, int steps) {
  const int64_t elements = bucket().elements;
  return run(options, ranks, steps,
             [&](int rank, int step) { return gradient(elements, rank, step); });
}

const std::vector<std::string> kBuiltIn = {"bf16", "fp16", "int8", "topk", "powersgd"};

TEST(Compression, LeavesTheSameBitsOnEveryRankAndInEveryRun) {
  for (const std::string& name : kBuiltIn) {
    for (const int ranks : {2, 3, 5}) {
      const CompressionOptions options{.name = name, .ratio = 0.1};
      const Ran one = run(options, ranks, 3), two = run(options, ranks, 3);
      for (int step = 0; step < 3; ++step) {
        for (int rank = 0; rank < ranks; ++rank) {
          EXPECT_TRUE(at::equal(one.results[rank][step], one.results[0][step]))
              << name << " rank " << rank << " of " << ranks;
          EXPECT_TRUE(at::equal(one.results[rank][step], two.results[rank][step])) << name;
        }
      }
    }
  }
}

TEST(Compression, IntoShorterNumbersIsAsCloseAsTheirPrecision) {
  const std::map<std::string, double> closest = {{"bf16", 4e-3}, {"fp16", 5e-4}, {"int8", 2e-2}};
  for (const auto& [name, tolerance] : closest) {
    for (const int ranks : {2, 3}) {
      const Ran ran = run({.name = name}, ranks, 1);
      EXPECT_LT(relative(ran.results[0][0], sum_of(bucket().elements, ranks, 0)), tolerance)
          << name;
      EXPECT_GT(relative(ran.results[0][0], sum_of(bucket().elements, ranks, 0)), 1e-6)
          << name << " compresses nothing";
    }
  }
}

TEST(Compression, ShrinksTheBytesOnTheWire) {
  CompressedBucket large;
  large.parameters = {{"w", {300, 512}, plan::DType::float32, true},
                      {"b", {300}, plan::DType::float32, true}};
  large.offsets = {0, 300 * 512};
  large.elements = 300 * 512 + 300;
  const std::map<std::string, double> most = {
      {"bf16", 0.501}, {"fp16", 0.52}, {"int8", 0.26}, {"topk", 0.035}, {"powersgd", 0.02}};
  for (const int ranks : {2, 3}) {
    const double plain = 2.0 * (ranks - 1) / ranks * static_cast<double>(large.elements) * 4;
    for (const auto& [name, share] : most) {
      const Ran ran = run(
          {.name = name, .rank = 2, .ratio = 0.01}, ranks, 1,
          [&](int rank, int step) { return gradient(large.elements, rank, step); }, large);
      for (const int64_t bytes : ran.bytes) {
        EXPECT_LT(static_cast<double>(bytes), share * plain) << name;
        EXPECT_GT(bytes, 0) << name;
      }
    }
  }
}

TEST(Compression, WithErrorFeedbackLosesNothingOverManySteps) {
  constexpr int kSteps = 60;
  const CompressedBucket layout = bucket();
  for (const std::string name : {"int8", "topk", "powersgd"}) {
    // The gradients are the same in every step: later steps must bring what one step leaves out.
    const Ran ran = run({.name = name, .rank = 1, .ratio = 0.05}, 3, kSteps,
                        [&](int rank, int) { return gradient(layout.elements, rank, 0); });
    at::Tensor brought = at::zeros({layout.elements}, at::kDouble);
    for (const at::Tensor& result : ran.results[0]) brought += result;
    const at::Tensor expected = sum_of(layout.elements, 3, 0) * kSteps;
    EXPECT_GT(relative(ran.results[0][0], sum_of(layout.elements, 3, 0)), 1e-3) << name;
    // The delivered sum and the contents of all error memories together are exactly the input.
    for (const auto& state : ran.states) {
      for (const auto& [part, tensor] : tensors_of(state, StateKind::residual)) {
        for (size_t i = 0; i < layout.parameters.size(); ++i)
          if (part == "error/" + layout.parameters[i].name)
            brought.narrow(0, layout.offsets[i], tensor.numel()).add_(tensor.reshape({-1}));
      }
    }
    EXPECT_LT(relative(brought, expected), 1e-5) << name;
  }
}

TEST(Compression, OfAStepThatDoesNotCountLeavesNoTrace) {
  const int64_t elements = bucket().elements;
  for (const std::string& name : kBuiltIn) {
    const auto groups = thread_groups(3);
    on_ranks(groups, [&](Group& group) {
      const auto shared = groups[static_cast<size_t>(group.rank())];
      const CompressionOptions options{.name = name, .ratio = 0.1};
      const auto disturbed = make_compressor(shared, bucket(), options),
                 undisturbed = make_compressor(shared, bucket(), options);
      for (int step = 0; step < 4; ++step) {
        for (const double size : {1e6, 1e-6})
          disturbed->all_reduce(gradient(elements, group.rank(), 10 + step) * size);
        const at::Tensor one = gradient(elements, group.rank(), step), two = one.clone();
        disturbed->all_reduce(one);
        disturbed->commit();
        undisturbed->all_reduce(two);
        undisturbed->commit();
        EXPECT_TRUE(at::equal(one, two)) << name << " step " << step;
      }
      for (const StateKind kind : {StateKind::residual, StateKind::rank})
        EXPECT_TRUE(same_bits(tensors_of(disturbed->state(), kind),
                              tensors_of(undisturbed->state(), kind)))
            << name;
    });
  }
}

// A run with another number of ranks divides errors evenly, and takes rank 0's factors.
TEST(Compression, KeepsErrorsWhoseSumCountsAndFactorsOfEachRank) {
  const std::vector<std::string> errors = {"error/large", "error/bias", "error/small",
                                           "error/conv"};
  for (const std::string& name : kBuiltIn) {
    const StateView state = run({.name = name, .rank = 1}, 2, 1).states[1];
    const bool feeds_back = name == "int8" || name == "topk" || name == "powersgd";
    const std::vector<NamedTensor> residuals = tensors_of(state, StateKind::residual),
                                   of_ranks = tensors_of(state, StateKind::rank);
    EXPECT_EQ(names_of(residuals), feeds_back ? errors : std::vector<std::string>()) << name;
    EXPECT_EQ(residuals.size() + of_ranks.size(), state.size()) << name;
    EXPECT_EQ(of_ranks.empty(), name != "powersgd") << name;
    for (const auto& [factor, tensor] : of_ranks) EXPECT_TRUE(factor.starts_with("q/")) << factor;
  }
}

TEST(Compression, ByPowerSgdFindsAMatrixOfItsRankExactly) {
  const CompressedBucket layout = bucket();
  const auto low_rank = [&](int rank, int) {
    const at::Tensor flat = gradient(layout.elements, rank, 0);
    const auto generator =
        at::detail::createCPUGenerator(9);  // The two directions are the same on every rank.
    const at::Tensor left = at::randn({40, 2}, generator, at::kFloat),
                     right = at::randn({2, 30}, generator, at::kFloat);
    flat.narrow(0, 0, 1200).copy_(at::matmul(left * (rank + 1), right).view({-1}));
    return flat;
  };
  const Ran ran = run({.name = "powersgd", .rank = 2}, 2, 2, low_rank);
  const at::Tensor expected = low_rank(0, 0) + low_rank(1, 0);
  EXPECT_LT(relative(ran.results[0][0].narrow(0, 0, 1200), expected.narrow(0, 0, 1200)), 1e-5);
  // Vectors, and matrices whose factors would not be smaller, travel unchanged.
  EXPECT_TRUE(at::equal(ran.results[0][0].narrow(0, 1200, 36), expected.narrow(0, 1200, 36)));
}

TEST(Compression, ByPowerSgdRecoversFromGradientsOfZero) {
  const CompressedBucket layout = bucket();
  const Ran ran = run({.name = "powersgd", .rank = 2}, 2, 8, [&](int rank, int step) {
    return step < 3 ? at::zeros({layout.elements}) : gradient(layout.elements, rank, 3);
  });
  EXPECT_EQ(ran.results[0][2].abs().max().item<float>(), 0);
  EXPECT_GT(ran.results[0][7].narrow(0, 0, 1200).norm().item<float>(), 0);
  EXPECT_TRUE(ran.results[0][7].isfinite().all().item<bool>());
}

TEST(Compression, ByTopKSendsTheLargestOfEachRank) {
  const CompressedBucket layout = bucket();
  const Ran ran =
      run({.name = "topk", .ratio = 0.001}, 2, 1, [&](int rank, int) {  // Two values of each.
        at::Tensor flat = gradient(layout.elements, rank, 0);
        flat[5] = 1;
        flat[10 + rank] = -2;
        return flat;
      });
  const at::Tensor result = ran.results[0][0];
  EXPECT_EQ(result.count_nonzero().item<int64_t>(), 3);
  EXPECT_EQ(result[5].item<float>(), 2);
  EXPECT_EQ(result[11].item<float>(), -2);
}

TEST(Compression, TakesValuesOfAnySizeAndFloat64) {
  for (const std::string& name : kBuiltIn) {
    for (const double size : {1e-30, 1e-8, 1e8, 1e30}) {
      const Ran ran = run({.name = name, .ratio = 1}, 2, 1, [&](int rank, int) {
        return gradient(bucket().elements, rank, 0) * size;
      });
      if (name == "powersgd") continue;  // Rank 2 is an approximation, which need only be finite.
      EXPECT_LT(relative(ran.results[0][0], sum_of(bucket().elements, 2, 0) * size), 2e-2)
          << name << " " << size;
    }
    const Ran ran = run(
        {.name = name}, 2, 2,
        [&](int rank, int step) { return gradient(bucket().elements, rank, step, at::kDouble); },
        bucket(at::kDouble));
    EXPECT_EQ(ran.results[0][1].scalar_type(), at::kDouble);
    EXPECT_TRUE(ran.results[0][1].isfinite().all().item<bool>()) << name;
  }
}

// The light list is for programmes without torch.
TEST(Compression, HasACompressorForEachNameThatAConfigurationMayHave) {
  EXPECT_THAT(compressor_names(), ::testing::UnorderedElementsAreArray(plan::compressions()));
}

TEST(Compression, RefusesUnknownNamesAndNumbersOutOfRange) {
  const auto message = [](const CompressionOptions& options) {
    try {
      check(options);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(message({.name = "zip"}),
              ::testing::AllOf(HasSubstr("\"zip\""), HasSubstr("powersgd")));
  EXPECT_THAT(message({.name = "topk", .ratio = 0}),
              HasSubstr("strategy.compression_ratio is \"0\""));
  EXPECT_THAT(message({.name = "topk", .ratio = 1.5}),
              HasSubstr("strategy.compression_ratio is \"1.5\""));
  EXPECT_THAT(message({.name = "powersgd", .rank = 0}),
              HasSubstr("strategy.compression_rank is \"0\""));
  EXPECT_EQ(message({.name = "none"}), "no error");
  EXPECT_THROW(make_compressor(thread_groups(1)[0], bucket(at::kBFloat16), {.name = "int8"}),
               Error);
}

// A user's own method: signs alone, scaled by the mean size.
class Signs : public Compressor {
 public:
  explicit Signs(std::shared_ptr<Group> group) : group_(std::move(group)) {}
  void all_reduce(const at::Tensor& flat) override {
    flat.copy_(flat.sign() * flat.abs().mean());
    group_->all_reduce(flat);
  }

 private:
  std::shared_ptr<Group> group_;
};

TEST(Compression, TakesAUsersOwnMethodByName) {
  register_compressor("signs of a test", [](std::shared_ptr<Group> group, const CompressedBucket&,
                                            const CompressionOptions&) {
    return std::make_unique<Signs>(std::move(group));
  });
  EXPECT_THAT(compressor_names(), ::testing::Contains("signs of a test"));
  const Ran ran = run({.name = "signs of a test"}, 2, 1);
  EXPECT_TRUE(ran.results[0][0].equal(ran.results[1][0]));
  const auto again = [] {
    register_compressor("topk", [](auto, const auto&, const auto&) { return nullptr; });
  };
  EXPECT_THROW(again(), Error);
}

// The last loss of training with whole steps.
double trained_loss(const DataParallelOptions& options, int ranks, int steps, double lr = 0.2) {
  double last = 0;
  const auto groups = thread_groups(ranks);
  std::vector<std::string> hashes(static_cast<size_t>(ranks));
  on_ranks(groups, [&](Group& group) {
    const auto rank = static_cast<size_t>(group.rank());
    const auto net = std::make_shared<Mlp>(6, 32, 4);
    DataParallel replica(groups[rank], net, SGD{.lr = lr, .momentum = 0.9}, options);
    for (int step = 0; step < steps; ++step) {
      const Data whole = data_of(24, step % 4), mine = whole.share(group.rank(), group.size());
      const StepOutcome outcome = replica.step(loss_on(*net, mine), mine.size(), whole.size());
      EXPECT_TRUE(outcome.updated);
      EXPECT_GT(outcome.bytes_sent, 0);
      if (rank == 0) last = outcome.loss;
    }
    hashes[rank] = sha256_of(replica.state().parameters);
  });
  for (const auto& hash : hashes) EXPECT_EQ(hash, hashes[0]) << "replicas differ";
  return last;
}

TEST(CompressedStep, TrainsAndKeepsReplicasTheSameBits) {
  const double plain = trained_loss({}, 3, 60);
  for (const std::string& name : kBuiltIn) {
    const double loss =
        trained_loss({.compression = {.name = name, .rank = 4, .ratio = 0.2}}, 3, 60);
    EXPECT_LT(loss, plain * 1.15 + 0.02) << name;
  }
}

TEST(CompressedStep, RefusesAnInfiniteGradientOnEveryRankAndRemembersNothingOfIt) {
  const auto groups = thread_groups(2);
  on_ranks(groups, [&](Group& group) {
    const auto net = std::make_shared<Mlp>();
    DataParallel replica(groups[static_cast<size_t>(group.rank())], net, SGD{.lr = 0.1},
                         {.compression = {.name = "topk"}});
    const Data mine = data_of(8).share(group.rank(), 2);
    const std::string before = sha256_of(replica.state().parameters);
    replica.backward(loss_on(*net, mine), mine.size(), 8);
    if (group.rank() == 1)
      net->first->weight.mutable_grad().fill_(std::numeric_limits<double>::infinity());
    const StepOutcome outcome = replica.step();
    EXPECT_TRUE(outcome.nonfinite_gradients);
    EXPECT_FALSE(outcome.updated);
    EXPECT_EQ(sha256_of(replica.state().parameters), before);
    EXPECT_TRUE(replica.step(loss_on(*net, mine), mine.size(), 8).updated);
  });
}

}  // namespace
}  // namespace trireme::tests::compression_test
