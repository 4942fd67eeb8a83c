#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
// These headers must come after torch.h.
#include <ATen/core/dispatch/Dispatcher.h>
#include <gmock/gmock.h>

#include <trireme/tensor/replica_random.h>
#include <functional>
#include <map>
#include <thread>

namespace trireme::replica_random_test {
namespace {

at::Tensor on_another_thread(const std::function<at::Tensor()>& draw) {
  at::Tensor result;
  std::thread thread([&] { result = draw(); });
  thread.join();
  return result;
}

at::Tensor drawn_with(uint64_t seed, const std::function<at::Tensor()>& draw) {
  const ReplicaRandom random(seed);
  return draw();
}

// The ways in which a model or a training loop draws random numbers without naming a generator.
const std::map<std::string, std::function<at::Tensor()>>& draws() {
  static const std::map<std::string, std::function<at::Tensor()>> all{
      {"randn", [] { return at::randn({50}); }},
      {"rand", [] { return at::rand({50}); }},
      {"rand_double", [] { return at::rand({50}, at::kDouble); }},
      {"randn_like", [] { return at::randn_like(at::ones({50})); }},
      {"rand_like", [] { return at::rand_like(at::ones({50})); }},
      {"randint", [] { return at::randint(1000, {50}); }},
      {"randint_like", [] { return at::randint_like(at::ones({50}), 1000); }},
      {"randperm", [] { return at::randperm(50); }},
      {"normal_of_tensors", [] { return at::normal(at::zeros({50}), at::ones({50})); }},
      {"normal_of_a_mean", [] { return at::normal(at::zeros({50}), 2.0); }},
      {"normal_of_a_deviation", [] { return at::normal(0.0, at::ones({50})); }},
      {"bernoulli", [] { return at::bernoulli(at::full({100}, 0.5)); }},
      {"bernoulli_p", [] { return at::bernoulli(at::zeros({100}), 0.5); }},
      {"in_place_bernoulli", [] { return at::zeros({100}).bernoulli_(0.5); }},
      {"uniform", [] { return at::zeros({50}).uniform_(-1, 1); }},
      {"normal", [] { return at::zeros({50}).normal_(); }},
      {"random", [] { return at::zeros({50}).random_(); }},
      {"random_to", [] { return at::zeros({50}).random_(100); }},
      {"random_from_to", [] { return at::zeros({50}).random_(5, 100); }},
      {"exponential", [] { return at::zeros({50}).exponential_(); }},
      {"cauchy", [] { return at::zeros({50}).cauchy_(); }},
      {"geometric", [] { return at::zeros({50}).geometric_(0.1); }},
      {"log_normal", [] { return at::zeros({50}).log_normal_(); }},
      {"poisson", [] { return at::poisson(at::full({50}, 20.0)); }},
      {"binomial", [] { return at::binomial(at::full({50}, 100.0), at::full({50}, 0.5)); }},
      {"standard_gamma", [] { return at::_standard_gamma(at::full({50}, 3.0)); }},
      {"dirichlet", [] { return at::_sample_dirichlet(at::full({50}, 3.0)); }},
      {"multinomial", [] { return at::multinomial(at::ones({100}), 50, true); }},
      {"multinomial_without_replacement", [] { return at::multinomial(at::ones({100}), 50); }},
      {"rrelu", [] { return at::rrelu(at::full({50}, -1.0), 0.1, 0.9, true); }},
      {"dropout", [] { return at::dropout(at::ones({100}), 0.5, true); }},
      {"alpha_dropout", [] { return at::alpha_dropout(at::ones({100}), 0.5, true); }},
      {"feature_dropout", [] { return at::feature_dropout(at::ones({100, 2, 2}), 0.5, true); }},
      {"native_dropout",
       [] { return std::get<0>(at::native_dropout(at::ones({100}), 0.5, true)); }},
      {"nn_dropout", [] { return torch::nn::Dropout(0.5)->forward(at::ones({100})); }},
      {"attention_dropout",
       [] {
         return at::scaled_dot_product_attention(at::ones({1, 2, 8, 4}), at::ones({1, 2, 8, 4}),
                                                 at::ones({1, 2, 8, 4}), {}, 0.5);
       }},
      {"linear_init", [] { return torch::nn::Linear(5, 10)->weight.detach(); }},
      {"conv_init",
       [] { return torch::nn::Conv2d(torch::nn::Conv2dOptions(2, 4, 3))->weight.detach(); }},
      {"embedding_init", [] { return torch::nn::Embedding(10, 5)->weight.detach(); }},
      {"xavier", [] { return torch::nn::init::xavier_normal_(at::zeros({5, 10})); }},
      {"orthogonal", [] { return torch::nn::init::orthogonal_(at::zeros({5, 10})); }},
      {"requires_grad",
       [] { return at::dropout(at::ones({100}).requires_grad_(), 0.5, true).detach(); }},
  };
  return all;
}

class ReplicaRandomDraw : public ::testing::TestWithParam<std::string> {
 protected:
  const std::function<at::Tensor()>& draw() const { return draws().at(GetParam()); }
};

TEST_P(ReplicaRandomDraw, DependsOnTheSeedAloneAndLeavesTheDefaultGenerator) {
  at::manual_seed(1);
  const at::Tensor state = at::detail::getDefaultCPUGenerator().get_state();
  const at::Tensor first = drawn_with(7, draw());
  EXPECT_TRUE(at::detail::getDefaultCPUGenerator().get_state().equal(state))
      << "the process's generator was used";
  at::manual_seed(2);
  EXPECT_TRUE(drawn_with(7, draw()).equal(first));
  EXPECT_TRUE(on_another_thread([&] { return drawn_with(7, draw()); }).equal(first));
}

TEST_P(ReplicaRandomDraw, DiffersBetweenSeeds) {
  EXPECT_FALSE(drawn_with(7, draw()).equal(drawn_with(8, draw())));
}

std::vector<std::string> names() {
  std::vector<std::string> names;
  for (const auto& [name, draw] : draws()) names.push_back(name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(Draws, ReplicaRandomDraw, ::testing::ValuesIn(names()),
                         [](const auto& each) { return each.param; });

TEST(ReplicaRandom, EqualsTorchsOwnSequenceOfThatSeed) {
  at::manual_seed(5);
  const at::Tensor expected = at::randn({20});
  EXPECT_TRUE(drawn_with(5, [] { return at::randn({20}); }).equal(expected));
}

TEST(ReplicaRandom, AGeneratorThatIsNamedIsUsed) {
  const auto named = [] { return at::randn({20}, at::detail::createCPUGenerator(3), at::kFloat); };
  EXPECT_TRUE(drawn_with(7, named).equal(named()));
}

TEST(ReplicaRandom, IsNotDisturbedByOtherThreads) {
  const at::Tensor expected = drawn_with(7, [] { return at::randn({100, 10}); });
  std::atomic<bool> done{false};
  std::thread other([&] {
    const ReplicaRandom random(8);
    while (!done) at::rand({10});
  });
  std::thread plain([&] {
    while (!done) at::rand({10});
  });
  EXPECT_TRUE(drawn_with(7, [] { return at::randn({100, 10}); }).equal(expected));
  done = true;
  other.join();
  plain.join();
}

TEST(ReplicaRandom, OtherThreadsDrawFromTheProcesssGenerator) {
  at::manual_seed(4);
  const at::Tensor expected = at::randn({20});
  at::manual_seed(4);
  const ReplicaRandom random(7);
  EXPECT_TRUE(on_another_thread([] { return at::randn({20}); }).equal(expected));
}

TEST(ReplicaRandom, RestoresTheDefaultGeneratorAtItsEnd) {
  at::manual_seed(4);
  const at::Tensor expected = at::randn({20});
  at::manual_seed(4);
  drawn_with(7, [] { return at::randn({20}); });
  EXPECT_TRUE(at::randn({20}).equal(expected));
}

TEST(ReplicaRandom, InnerObjectsReplaceOuterOnesForAWhile) {
  const at::Tensor whole =
      drawn_with(7, [] { return at::stack({at::randn({20}), at::randn({20})}); });
  const ReplicaRandom outer(7);
  const at::Tensor before = at::randn({20});
  EXPECT_TRUE(drawn_with(9, [] {
                return at::randn({20});
              }).equal(drawn_with(9, [] { return at::randn({20}); })));
  EXPECT_TRUE(at::stack({before, at::randn({20})}).equal(whole))
      << "the outer sequence continues where it was";
}

TEST(ReplicaRandom, ReseedRestartsTheSequence) {
  ReplicaRandom random(7);
  at::randn({3});
  random.reseed(11);
  EXPECT_TRUE(at::randn({20}).equal(drawn_with(11, [] { return at::randn({20}); })));
}

// Checkpointed or custom functions may draw in backward, which runs on the calling thread.
struct NoisyGradient : torch::autograd::Function<NoisyGradient> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& input) {
    return input.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    return {at::randn_like(gradients[0])};
  }
};
TEST(ReplicaRandom, CoversBackward) {
  const auto gradient = [] {
    const at::Tensor input = at::ones({20}).requires_grad_();
    NoisyGradient::apply(input).sum().backward();
    return input.grad();
  };
  at::manual_seed(1);
  const at::Tensor first = drawn_with(7, gradient);
  at::manual_seed(2);
  EXPECT_TRUE(drawn_with(7, gradient).equal(first));
}

// The test covers all random operations of this LibTorch. An operation with a generator argument
// that is not intercepted would draw from the process's generator.
TEST(ReplicaRandom, EveryOperationThatTakesAGeneratorIsCovered) {
  std::vector<std::string> missed;
  for (const auto& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    if (!op || name.name.rfind("aten::", 0) != 0) continue;
    for (const auto& argument : op->schema().arguments())
      if (argument.name() == "generator" &&
          !op->hasKernelForDispatchKey(c10::DispatchKey::TESTING_ONLY_GenericMode))
        missed.push_back(name.name + "." + name.overload_name);
  }
  EXPECT_THAT(missed, ::testing::IsEmpty());
}

TEST(ReplicaRandom, RepeatsFromAMark) {
  ReplicaRandom random(7);
  at::randn({3});
  const ReplicaRandom::Mark mark = random.mark();
  const at::Tensor first = at::randn({5}), mask = at::dropout(at::ones({50}), 0.5, true);
  random.restore(mark);
  EXPECT_TRUE(at::equal(at::randn({5}), first));
  EXPECT_TRUE(at::equal(at::dropout(at::ones({50}), 0.5, true), mask));
  const at::Tensor after = at::randn({5});
  random.restore(mark);  // A mark may be used again.
  EXPECT_TRUE(at::equal(at::randn({5}), first));
  EXPECT_FALSE(at::equal(after, first));
}

}  // namespace
}  // namespace trireme::replica_random_test
