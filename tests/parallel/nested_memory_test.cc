// Plans under which a block may run forward more than twice.
#include "deep.h"
// This header must come after those of torch.
#include <gmock/gmock.h>

#include <torch/csrc/autograd/autograd.h>

#include <trireme/parallel/activation_measure.h>
#include <trireme/parallel/activation_memory.h>
#include <trireme/plan/memory_simulation.h>
#include <random>

#include "../base/expect_error.h"

namespace trireme::nested_memory_test {
namespace {

using plan::MemoryDecision;
using plan::MemoryKind;
using plan::MemoryOperation;
using ::testing::HasSubstr;
using tests::data_of;
using tests::Deep;
using tests::model_of;
using tests::train_engines;
using tests::Trained;

// Blocks which each have something that a repetition must not change.
struct Odd : torch::nn::Module {
  Odd() { to(at::kDouble); }
  std::vector<Block> blocks() {
    return {{"linear", {in.ptr()}, [this](const Tensors& x) { return Tensors{in(x[0])}; }},
            {"in place",
             {second.ptr()},
             [this](const Tensors& x) {
               at::Tensor given = x[0];
               return Tensors{second(given.relu_())};
             }},
            {"nothing is saved",
             {},
             [](const Tensors& x) { return Tensors{x[0].view({2, -1}).view(x[0].sizes())}; }},
            {"two outputs",
             {third.ptr()},
             [this](const Tensors& x) {
               const at::Tensor y = at::dropout(at::tanh(third(x[0])), 0.3, is_training());
               return Tensors{y, y.narrow(1, 0, 4)};
             }},
            {"two inputs",
             {},
             [](const Tensors& x) { return Tensors{x[0] * x[1].sum(1, true), x[1].exp()}; }},
            {"gradients of its own",
             {},
             [](const Tensors& x) {
               const at::Tensor z = x[0] * x[0] * x[0];
               const at::Tensor slope = torch::autograd::grad({z.sum()}, {x[0]}, {}, true)[0];
               return Tensors{x[0].sin() * slope.detach() * x[1].mean()};
             }},
            {"norm", {norm.ptr()}, [this](const Tensors& x) { return Tensors{norm(x[0])}; }},
            {"head", {head.ptr()}, [this](const Tensors& x) { return Tensors{head(x[0])}; }}};
  }
  at::Tensor forward(const at::Tensor& x) { return output_of(blocks(), {x}); }
  torch::nn::Linear in = register_module("in", torch::nn::Linear(6, 8)),
                    second = register_module("second", torch::nn::Linear(8, 8)),
                    third = register_module("third", torch::nn::Linear(8, 8));
  torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(8));
  torch::nn::Linear head = register_module("head", torch::nn::Linear(8, 4));
};

// A random persistent schedule of the segment from s to t, of `blocks` blocks.
void add_segment(int s, int t, int blocks, std::mt19937& random,
                 std::vector<MemoryOperation>& operations) {
  const int choice = std::uniform_int_distribution<int>(s, t)(random);
  if (choice == s) {
    operations.push_back({MemoryKind::forward_all, s});
    if (s + 1 == blocks) operations.push_back({MemoryKind::loss, -1});
    if (s < t) add_segment(s + 1, t, blocks, random, operations);
    operations.push_back({MemoryKind::backward, s});
    return;
  }
  operations.push_back({MemoryKind::forward_checkpoint, s});
  for (int i = s + 1; i < choice; ++i) operations.push_back({MemoryKind::forward_nothing, i});
  add_segment(choice, t, blocks, random, operations);
  add_segment(s, choice - 1, blocks, random, operations);
}

std::vector<MemoryDecision> decisions_of(const std::vector<MemoryOperation>& operations,
                                         size_t blocks) {
  std::vector<MemoryDecision> decisions(blocks, MemoryDecision::keep);
  for (const MemoryOperation& each : operations)
    if (each.kind == MemoryKind::forward_checkpoint || each.kind == MemoryKind::forward_nothing)
      decisions[static_cast<size_t>(each.block)] = MemoryDecision::recompute;
  return decisions;
}

std::string text_of(const std::vector<MemoryOperation>& operations) {
  std::string text;
  for (const MemoryOperation& each : operations) text += to_string(each) + " ";
  return text;
}

struct Result {
  Tensors values;  // Outputs, gradients, buffers, the next random numbers.
  int64_t peak = 0, left = 0;
};

// Two micro-batches under `operations`, or without decisions if there are none.
template <typename Net>
Result train(const std::vector<MemoryOperation>& operations, const std::shared_ptr<Net>& net,
             bool retains = false) {
  ReplicaRandom random(11);
  for (auto& parameter : net->parameters()) {
    const at::NoGradGuard no_grad;
    parameter.copy_(at::randn(parameter.sizes(), at::detail::createCPUGenerator(7), at::kDouble) *
                    0.3);
  }
  const Model model{
      net, [net](const at::Tensor& x) { return net->forward(x); }, {"data"}, net->blocks()};
  ActivationMemory memory(model, &random);
  if (!operations.empty())
    memory.decide(decisions_of(operations, memory.blocks().size()), {}, operations);
  Result result;
  for (int i = 0; i < 2; ++i) {
    const Batch batch = tests::batch_of(data_of(32, i), 0, 1);
    {
      const at::Tensor output =
          operations.empty() ? output_of(model, batch) : memory.output_of(batch);
      const at::Tensor loss = memory.keep(
          "the loss", batch, [&] { return tests::cross_entropy(output, batch.target); });
      if (retains) loss.backward({}, /*retain_graph=*/true);
      loss.backward();
      result.values.push_back(output.detach());
    }
    result.left += memory.bytes().current();
  }
  for (const at::Tensor& parameter : net->parameters()) result.values.push_back(parameter.grad());
  for (const at::Tensor& buffer : net->buffers()) result.values.push_back(buffer);
  result.values.push_back(at::rand({4}));
  result.peak = memory.bytes().peak();
  return result;
}

void expect_same_bits(const Result& a, const Result& b, const std::string& what) {
  ASSERT_EQ(a.values.size(), b.values.size());
  for (size_t i = 0; i < a.values.size(); ++i)
    EXPECT_TRUE(a.values[i].equal(b.values[i])) << what << ", tensor " << i;
}

TEST(NestedMemory, EveryScheduleGivesTheBitsOfNone) {
  for (const bool retains : {false, true}) {
    const Result plain = train({}, std::make_shared<Odd>(), retains);
    std::mt19937 random(5);
    for (int i = 0; i < 60; ++i) {
      std::vector<MemoryOperation> operations;
      add_segment(0, 7, 8, random, operations);
      const Result nested = train(operations, std::make_shared<Odd>(), retains);
      expect_same_bits(nested, plain, text_of(operations));
      EXPECT_EQ(nested.left, 0) << text_of(operations);
      if (::testing::Test::HasFailure()) return;
    }
  }
}

TEST(NestedMemory, EveryScheduleHoldsWhatThePlanSays) {
  constexpr int kLayers = 7;
  const auto measured_net = std::make_shared<Deep>(true, kLayers);
  const at::Tensor data = tests::batch_of(data_of(32), 0, 1).data;
  auto blocks = measure(measured_net->blocks(), {data}, storages_of(*measured_net), nullptr);
  const int64_t logits = 32 * 4 * 8;  // The loss saves as much.
  blocks.back().inner_bytes += logits;
  plan::MemoryPlanOptions options;
  options.counts_gradients = false;
  const plan::MemoryChain chain(blocks, options);
  std::mt19937 random(6);
  for (int i = 0; i < 60; ++i) {
    std::vector<MemoryOperation> operations;
    add_segment(0, kLayers, kLayers + 1, random, operations);
    const auto held =
        static_cast<double>(train(operations, std::make_shared<Deep>(true, kLayers)).peak);
    EXPECT_NEAR(static_cast<double>(simulate(chain, operations).peak_bytes), held, 0.05 * held)
        << text_of(operations);
  }
}

int64_t least_of(const std::string& message) {
  const std::string words = "the least that works is ";
  const size_t begin = message.find('(', message.find(words)) + 1;
  return std::stoll(message.substr(begin));
}

TEST(NestedMemory, ABudgetBelowThatOfOneRepetitionIsKept) {
  constexpr int kLayers = 14;
  const auto net = std::make_shared<Deep>(true, kLayers);
  const at::Tensor data = tests::batch_of(data_of(24), 0, 1).data;
  plan::MemoryPlanOptions once;
  once.policy = "recompute";
  once.can_nest = once.counts_gradients = false;
  once.budget_bytes = 1;
  const int64_t least_once = least_of(message_of(ErrorCode::invalid_argument, [&] {
    plan_memory(measure(net->blocks(), {data.chunk(2)[0]}, storages_of(*net), nullptr), once);
  }));
  for (const int ranks : {1, 2})
    for (const bool together : {false, true}) {
      const auto train = [&](const MemoryOptions& options) {
        return train_engines(ranks, options, together, kLayers);
      };
      const int64_t least = least_of(message_of(
          ErrorCode::invalid_argument, [&] { train({.policy = "recompute", .budget = 100}); }));
      EXPECT_LT(least, 0.9 * static_cast<double>(least_once / ranks));
      const Trained plain = train({});
      for (const int64_t budget : {least, (least + least_once / ranks) / 2}) {
        const Trained nested = train({.policy = "recompute", .budget = budget});
        EXPECT_EQ(nested.sha256, plain.sha256);
        EXPECT_LE(nested.activation_bytes, budget);
        const auto held = static_cast<double>(nested.activation_bytes);
        EXPECT_NEAR(static_cast<double>(nested.predicted), held, 0.05 * held);
      }
      EXPECT_THAT(message_of(ErrorCode::invalid_argument,
                             [&] { train({.policy = "recompute", .budget = least - 1}); }),
                  HasSubstr(std::to_string(least)));
    }
}

}  // namespace
}  // namespace trireme::nested_memory_test
