// A model under every decision for its blocks, and engines under every policy.
#include "deep.h"
// This header must come after those of torch.
#include <gmock/gmock.h>

#include <trireme/parallel/activation_measure.h>
#include <trireme/parallel/activation_memory.h>
#include <trireme/tensor/replica_random.h>
#include <algorithm>

#include "../base/expect_error.h"

namespace trireme::activation_memory_test {
namespace {

using plan::MemoryDecision;
using ::testing::HasSubstr;
using tests::Data;
using tests::data_of;
using tests::Deep;
using tests::model_of;
using tests::take_step;
using tests::TemporaryFolder;
using tests::thread_groups;
using tests::train_engines;
using tests::Trained;

constexpr int kLayers = tests::Deep::kLayers, kWidth = tests::Deep::kWidth;

struct Result {
  Tensors values;  // Output, gradients, buffers, the next random numbers.
  int64_t peak = 0;
};

Result train(const std::vector<MemoryDecision>& decisions, int micro_batches = 2) {
  const TemporaryFolder folder;
  ReplicaRandom random(11);
  const auto net = std::make_shared<Deep>();
  const Model model = model_of(net);
  ActivationMemory memory(model, &random);
  if (!decisions.empty())
    memory.decide(decisions, {.folder = folder.path, .least_bytes = 1024, .limit_bytes = 1 << 16});
  Result result;
  for (int i = 0; i < micro_batches; ++i) {
    const Batch batch = tests::batch_of(data_of(32, i), 0, 1);
    const at::Tensor output =
        decisions.empty() ? output_of(model, batch) : memory.output_of(batch);
    memory.keep("the loss", batch, [&] { return tests::cross_entropy(output, batch.target); })
        .backward();
    result.values.push_back(output.detach());
  }
  for (const at::Tensor& parameter : net->parameters()) result.values.push_back(parameter.grad());
  for (const at::Tensor& buffer : net->buffers()) result.values.push_back(buffer);
  result.values.push_back(at::rand({4}));
  result.peak = memory.bytes().peak();
  // A write that has begun ends by itself.
  const bool swaps = std::ranges::count(decisions, MemoryDecision::swap) > 0;
  EXPECT_TRUE(swaps || memory.bytes().current() == 0);
  return result;
}

void expect_same_bits(const Result& a, const Result& b, const std::string& what) {
  ASSERT_EQ(a.values.size(), b.values.size());
  for (size_t i = 0; i < a.values.size(); ++i)
    EXPECT_TRUE(a.values[i].equal(b.values[i])) << what << ", tensor " << i;
}

TEST(ActivationMemory, GivesTheSameBitsUnderEveryDecision) {
  const Result plain = train({});
  const std::vector<MemoryDecision> kinds = {MemoryDecision::keep, MemoryDecision::recompute,
                                             MemoryDecision::swap};
  for (size_t first = 0; first < kinds.size(); ++first)
    for (size_t second = 0; second < kinds.size(); ++second) {
      std::vector<MemoryDecision> decisions;
      for (int i = 0; i < kLayers + 1; ++i)
        decisions.push_back(kinds[i % 2 == 0 ? first : second]);
      expect_same_bits(
          train(decisions), plain,
          std::string(to_string(kinds[first])) + " and " + std::string(to_string(kinds[second])));
    }
}

TEST(ActivationMemory, RecomputationAndSwappingHoldLess) {
  const int64_t all = train(std::vector(kLayers + 1, MemoryDecision::keep)).peak;
  EXPECT_LT(train(std::vector(kLayers + 1, MemoryDecision::recompute)).peak, all / 2);
  EXPECT_LT(train(std::vector(kLayers + 1, MemoryDecision::swap)).peak, all);
}

TEST(ActivationMemory, PredictsTheBytesThatItHolds) {
  for (const char* policy : {"none", "recompute"}) {
    const auto net = std::make_shared<Deep>();
    const Model model = model_of(net);
    ActivationMemory memory(model);
    const Batch batch = tests::batch_of(data_of(32), 0, 1);
    auto measures = measure(memory.blocks(), {batch.data}, memory.of_model(), nullptr);
    plan::MemoryPlanOptions options;
    options.policy = policy;
    options.can_nest = false;
    options.counts_gradients = false;
    const plan::MemoryPlan plan = plan::plan_memory(measures, options);
    std::vector<MemoryDecision> decisions;
    for (const auto& block : plan.blocks) decisions.push_back(block.decision);
    memory.decide(decisions, {});
    memory.output_of(batch).sum().backward();
    const auto measured = static_cast<double>(memory.bytes().peak());
    EXPECT_NEAR(static_cast<double>(plan.peak_bytes), measured, 0.05 * measured) << policy;
  }
}

TEST(ActivationMemory, MeasuresLeaveNoTrace) {
  const auto net = std::make_shared<Deep>();
  const auto before = copies_of(state_of(*net).buffers);
  ReplicaRandom random(3);
  const ReplicaRandom::Mark mark = random.mark();
  const Batch batch = tests::batch_of(data_of(32), 0, 1);
  const auto measures = measure(net->blocks(), {batch.data}, storages_of(*net), &random);
  ASSERT_EQ(measures.size(), kLayers + 1);
  // ReLU's result is dropout's and batch norm's input; tanh saves the output.
  EXPECT_EQ(measures[1].input_bytes, 32 * kWidth * 8);
  EXPECT_TRUE(measures[1].saves_input);
  EXPECT_TRUE(measures[1].saves_output);
  EXPECT_GT(measures[1].inner_bytes, 2 * measures[1].input_bytes);
  EXPECT_GT(measures[1].forward_seconds, 0);
  EXPECT_GT(measures[1].backward_seconds, 0);
  EXPECT_TRUE(random.mark().equal(mark));
  for (size_t i = 0; i < before.size(); ++i)
    EXPECT_TRUE(state_of(*net).buffers[i].tensor.equal(before[i]));
  for (const at::Tensor& parameter : net->parameters()) EXPECT_FALSE(parameter.grad().defined());
}

TEST(ActivationMemory, AModelWithoutBlocksIsOneBlock) {
  const auto net = std::make_shared<Deep>();
  Model model = model_of(net);
  model.blocks.clear();
  ActivationMemory memory(model);
  ASSERT_EQ(memory.blocks().size(), 1);
  memory.decide({MemoryDecision::recompute}, {});
  const Batch batch = tests::batch_of(data_of(32), 0, 1);
  EXPECT_EQ(memory.output_of(batch).size(0), 32);
}

TEST(MemoryOptions, RulesThatAreWrongAreNamed) {
  for (const char* rules : {"layer0", "=keep", "layer0=forget"})
    EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { parse_memory_rules(rules); }),
                HasSubstr(rules));
  EXPECT_EQ(parse_memory_rules("a*=recompute,b=keep").size(), 2);
  MemoryOptions options;
  options.policy = "swap";
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { check(options); }),
              HasSubstr("memory.swap_dir"));
  options.policy = "auto";
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { check(options); }),
              HasSubstr("memory.budget"));
}

TEST(StepMemory, EnginesTrainTheSameUnderEveryPolicy) {
  const TemporaryFolder folder;
  for (const int ranks : {1, 2})
    for (const bool together : {false, true}) {
      const Trained plain = train_engines(ranks, {}, together);
      for (const char* policy : {"recompute", "swap"}) {
        const Trained other =
            train_engines(ranks, {.policy = policy, .swap_dir = folder.path}, together);
        EXPECT_EQ(other.sha256, plain.sha256) << policy << " on " << ranks;
      }
      EXPECT_GT(plain.activation_bytes, 0);
    }
}

TEST(StepMemory, KeepsItsBudgetOrSaysTheLeastThatWorks) {
  const Trained plain = train_engines(1, {}, false);
  const Trained budgeted =
      train_engines(1, {.policy = "auto", .budget = plain.activation_bytes * 2 / 3}, false);
  EXPECT_EQ(budgeted.sha256, plain.sha256);
  EXPECT_LE(budgeted.activation_bytes, plain.activation_bytes * 2 / 3);
  EXPECT_THAT(message_of(ErrorCode::invalid_argument,
                         [&] { train_engines(1, {.policy = "auto", .budget = 100}, false); }),
              HasSubstr("100"));
}

// Blocks that save four tensors of float32 each, of their own width.
struct Wide : torch::nn::Module {
  explicit Wide(const std::vector<int64_t>& widths) {
    int64_t inputs = 6;
    for (const int64_t width : widths) {
      layers.push_back(register_module("layer" + std::to_string(layers.size()),
                                       torch::nn::Linear(inputs, width)));
      inputs = width;
    }
    layers.push_back(register_module("head", torch::nn::Linear(inputs, 4)));
    for (auto& parameter : parameters()) {
      const at::NoGradGuard no_grad;
      parameter.copy_(at::randn(parameter.sizes(), at::detail::createCPUGenerator(7)) * 0.1);
    }
  }
  std::vector<Block> blocks() const {
    std::vector<Block> all;
    for (torch::nn::Linear layer : layers)
      all.push_back(
          {"block" + std::to_string(all.size()), {layer.ptr()}, [layer](const Tensors& x) mutable {
             const at::Tensor y = at::tanh(layer(x[0]));
             return Tensors{at::sigmoid(y) * at::sin(y)};
           }});
    return all;
  }
  at::Tensor forward(const at::Tensor& x) { return output_of(blocks(), {x}); }
  std::vector<torch::nn::Linear> layers;
};

Trained train_wide(const std::vector<int64_t>& widths, const MemoryOptions& options) {
  const auto groups = thread_groups(1);
  const auto net = std::make_shared<Wide>(widths);
  ReplicaRandom random(1);
  EngineSetting setting = tests::setting_of(groups[0], net);
  setting.model.blocks = net->blocks();
  setting.memory = options;
  setting.random = &random;
  const auto engine = find_strategy("mirrored").make(setting);
  Data data = data_of(512, 3);
  data.x = data.x.to(at::kFloat);
  for (int step = 0; step < 3; ++step) take_step(*engine, data, step + 1, 2);
  const MemoryUse use = engine->memory_use();
  return {sha256_of(state_of(*net).parameters), use.activation_bytes,
          use.predicted_activation_bytes};
}

TEST(StepMemory, SwappingKeepsItsBudgetAndTakesWhatIsPredicted) {
  const TemporaryFolder folder;
  for (const std::vector<int64_t>& widths :
       {std::vector<int64_t>(8, 128), std::vector<int64_t>{96, 128, 160, 96, 192, 128, 96, 224}}) {
    const Trained plain = train_wide(widths, {});
    for (const char* policy : {"swap", "auto"})
      for (const double fraction : {0.5, 0.75}) {
        const auto budget =
            static_cast<int64_t>(fraction * static_cast<double>(plain.activation_bytes));
        const Trained swapped =
            train_wide(widths, {.policy = policy,
                                .budget = budget,
                                .rules = std::string(policy) == "auto" ? "block2=swap" : "",
                                .swap_dir = folder.path});
        const auto measured = static_cast<double>(swapped.activation_bytes);
        EXPECT_EQ(swapped.sha256, plain.sha256);
        EXPECT_LE(swapped.activation_bytes, budget) << policy << ", " << fraction;
        EXPECT_NEAR(static_cast<double>(swapped.predicted), measured, 0.05 * measured)
            << policy << ", " << fraction;
      }
  }
}

}  // namespace
}  // namespace trireme::activation_memory_test
