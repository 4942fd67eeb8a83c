// The blocks of a model are measured one by one before it is cut, and nothing remains of that.
#include "engines.h"

#include <torch/nn/modules/batchnorm.h>
#include <trireme/parallel/activation_measure.h>
#include <trireme/parallel/mesh/block_costs.h>
#include <trireme/parallel/mesh/model_forms.h>
#include <trireme/parallel/nn/linear.h>
#include <trireme/tensor/deferred_model.h>
#include <trireme/tensor/hollow.h>
#include <trireme/tensor/replica_random.h>
// This header must come after those of torch.
#include <gmock/gmock.h>

#include "../base/expect_error.h"

namespace trireme::block_costs_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using tests::on_ranks;
using tests::thread_groups;

constexpr int64_t kSamples = 12, kWidth = 16;

// The second block adds a constant that the module holds without having registered it, and hands
// its input on. The last one has the weight of the first one.
struct Net : torch::nn::Module {
  std::vector<Block> blocks() {
    return {
        {"in",
         {in.ptr(), norm.ptr()},
         [this](const Tensors& x) {
           return Tensors{at::dropout(norm(in(x[0])), 0.5, is_training())};
         }},
        {"middle",
         {middle.ptr()},
         [this](const Tensors& x) { return Tensors{at::relu(middle(x[0]) + constant), x[0]}; }},
        {"out", {out.ptr(), in.ptr()}, [this](const Tensors& x) {
           return Tensors{out(x[0] + at::linear(x[1], in->weight).sum())};
         }}};
  }
  torch::nn::Linear in = register_module("in", torch::nn::Linear(kWidth, kWidth));
  torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(kWidth));
  torch::nn::Linear middle = register_module("middle", torch::nn::Linear(kWidth, kWidth));
  torch::nn::Linear out = register_module("out", torch::nn::Linear(kWidth, 4));
  at::Tensor constant = at::rand({kWidth});
};

Batch sample_of(int64_t samples) {
  Batch batch;
  const auto generator = at::detail::createCPUGenerator(5);
  batch.data = at::randn({samples, kWidth}, generator);
  batch.target = at::randint(4, {samples}, generator, at::kLong);
  batch.indices.resize(static_cast<size_t>(samples));
  return batch;
}

EngineSetting setting_for(const std::shared_ptr<Group>& group, const std::shared_ptr<Net>& net) {
  EngineSetting setting;
  setting.strategy = "pipeline";
  setting.group = group;
  setting.mesh.groups = {{plan::kDataAxis, tests::thread_groups(1)[0]},
                         {plan::kTensorAxis, tests::thread_groups(1)[0]}};
  setting.model.module = net;
  setting.model.blocks = net->blocks();
  setting.optimizer = Adam{.lr = 1e-3};
  setting.loss = tests::cross_entropy;
  setting.division.pipeline.cut = "memory";
  setting.sample = [](const DataShare&) { return sample_of(kSamples); };
  return setting;
}

plan::PipelinePlan two_stages() {
  return plan::plan_pipeline({.schedule = "zbh1", .stages = 2, .microbatches = 3});
}

TEST(BlockCosts, MeasuringAHollowModelLeavesNoTrace) {
  ReplicaRandom random(9);
  std::vector<std::shared_ptr<Net>> made;
  DeferredModel deferred([&] { return made.emplace_back(std::make_shared<Net>()); });
  const std::shared_ptr<Net> net = made.front();
  EngineSetting setting = setting_for(thread_groups(1)[0], net);
  setting.random = &random;
  setting.keep_only = [&](const std::set<std::string>& names) { deferred.materialise(names); };
  const plan::MeasuredChain chain = measured_blocks(setting, setting.model.blocks, two_stages());
  ASSERT_EQ(chain.blocks.size(), 3);
  for (const at::Tensor& each : net->parameters()) {
    EXPECT_TRUE(is_hollow(each));
    EXPECT_FALSE(each.grad().defined());
  }
  // The values and the random numbers are those of a model that nobody has measured.
  std::set<std::string> names;
  for (const auto& each : net->named_parameters()) names.insert(each.key());
  for (const auto& each : net->named_buffers()) names.insert(each.key());
  deferred.materialise(names);
  const at::Tensor next = at::rand({8});
  ReplicaRandom same(9);
  const auto plain = std::make_shared<Net>();
  EXPECT_TRUE(at::rand({8}).equal(next));
  EXPECT_EQ(sha256_of(state_of(*plain).parameters), sha256_of(state_of(*net).parameters));
  EXPECT_EQ(sha256_of(state_of(*plain).buffers), sha256_of(state_of(*net).buffers));
}

TEST(BlockCosts, CountsWhatEachBlockSavesAndHandsOn) {
  const auto net = std::make_shared<Net>();
  const EngineSetting setting = setting_for(thread_groups(1)[0], net);
  const plan::MeasuredChain chain = measured_blocks(setting, setting.model.blocks, two_stages());
  const int64_t tensor = kSamples / 3 * kWidth * 4;
  // The batch counts nothing. Values: the batch, the first output, relu's, the loss.
  ASSERT_GE(chain.value_bytes.size(), 4u);
  EXPECT_EQ(chain.value_bytes[0], 0);
  const plan::MeasuredBlock& middle = chain.blocks[1];
  EXPECT_EQ(middle.inputs.size(), 1u);
  EXPECT_EQ(middle.outputs.size(), 2u);
  EXPECT_EQ(chain.bytes_of(middle.outputs), 2 * tensor);
  EXPECT_EQ(middle.saved.values, middle.outputs);  // The linear layer's input and relu's result.
  EXPECT_EQ(middle.saved.inner_bytes, 0);
  // Between the halves: the input, and the gradient of the linear layer's output.
  EXPECT_EQ(middle.between_halves.values, middle.inputs);
  EXPECT_EQ(middle.between_halves.inner_bytes, tensor);
  for (const plan::MeasuredBlock& block : chain.blocks) EXPECT_GE(block.forward_seconds, 0);
  EXPECT_EQ(plan::MeasuredChain::from_json(chain.to_json()).to_json(), chain.to_json());
}

TEST(BlockCosts, AParameterCountsWithItsGradientAndItsState) {
  const auto net = std::make_shared<Net>();
  EngineSetting setting = setting_for(thread_groups(1)[0], net);
  const auto whole = state_of(*net);
  const auto forms = forms_of(setting.mesh, setting.model, whole);
  const auto tensors = tensors_by_block(setting.model.blocks, whole);
  const auto costs = costs_of(setting, setting.model.blocks, tensors, forms,
                              measured_blocks(setting, setting.model.blocks, two_stages()));
  ASSERT_EQ(costs.size(), 3u);
  EXPECT_EQ(costs[1].parameters, kWidth * kWidth + kWidth);
  EXPECT_EQ(costs[1].parameter_bytes, 4 * 4 * costs[1].parameters);  // Adam has two tensors.
  EXPECT_GT(costs[1].activation_bytes, 0);
  EXPECT_GT(costs[1].output_bytes, costs[0].output_bytes);
}

struct Columns : torch::nn::Module {
  std::vector<Block> blocks() {
    return {{"columns", {columns.ptr(), rows.ptr()}, [this](const Tensors& x) {
               return Tensors{rows(at::relu(columns(x[0])))};
             }}};
  }
  nn::ColumnLinear columns = register_module(
      "columns", nn::ColumnLinear(nn::ColumnLinearOptions{.in = kWidth, .out = 64}));
  nn::RowLinear rows =
      register_module("rows", nn::RowLinear(nn::RowLinearOptions{.in = 64, .out = 4}));
};

TEST(BlockCosts, DividedLayersAreMeasuredAsOneRankHasThemAndAreWholeAfterwards) {
  const auto net = std::make_shared<Columns>();
  const std::string values = sha256_of(state_of(*net).parameters);
  EngineSetting setting = setting_for(thread_groups(1)[0], std::make_shared<Net>());
  setting.model.module = net;
  setting.model.blocks = net->blocks();
  const auto inner_bytes = [&](int ranks) {
    setting.mesh.groups[plan::kTensorAxis] = thread_groups(ranks)[0];
    const auto chain = measured_blocks(setting, setting.model.blocks, two_stages());
    EXPECT_EQ(sha256_of(state_of(*net).parameters), values);
    EXPECT_EQ(net->columns->ranks(), nullptr);
    return chain.blocks[0].saved.inner_bytes;
  };
  // ReLU saves its result, of 64 columns for each sample.
  const int64_t whole = inner_bytes(1);
  EXPECT_GE(whole, kSamples / 3 * 64 * 4);
  EXPECT_EQ(inner_bytes(4) * 4, whole);
}

TEST(BlockCosts, AFailureOfTheFirstRankEndsAllWithItsError) {
  const auto groups = thread_groups(3);
  std::vector<std::string> texts(3);
  on_ranks(groups, [&](Group& group) {
    const auto rank = static_cast<size_t>(group.rank());
    const auto net = std::make_shared<Net>();
    EngineSetting setting = setting_for(groups[rank], net);
    setting.model.blocks[1].forward = [](const Tensors&) -> Tensors {
      throw std::runtime_error("the second block has no such samples");
    };
    try {
      measured_blocks(setting, setting.model.blocks, two_stages());
    } catch (const std::exception& error) {
      texts[rank] = error.what();
    }
  });
  for (const std::string& text : texts)
    EXPECT_THAT(text, HasSubstr("the second block has no such samples"));
}

}  // namespace
}  // namespace trireme::block_costs_test
