// Models with several inputs, and models that may be cut.
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include <trireme/parallel/engine.h>
#include <trireme/parallel/model.h>
#include <functional>
#include <tuple>

#include "../base/expect_error.h"

namespace trireme::model_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct Net : torch::nn::Module {
  torch::nn::Linear first = register_module("first", torch::nn::Linear(3, 4));
  torch::nn::Linear second = register_module("second", torch::nn::Linear(4, 2));
  at::Tensor forward(const at::Tensor& x) { return second(first(x).tanh()); }
  std::vector<Block> blocks() const {
    return {
        {"one",
         {first.ptr()},
         [layer = first.ptr()](const Tensors& x) { return Tensors{layer->forward(x[0]).tanh()}; }},
        {"two", {second.ptr()}, [layer = second.ptr()](const Tensors& x) {
           return Tensors{layer->forward(x[0])};
         }}};
  }
};

Batch batch_of(int64_t samples) {
  Batch batch;
  batch.data = at::arange(3 * samples, at::kFloat).view({samples, 3});
  batch.target = at::arange(samples, at::kLong);
  batch.more["mask"] = at::ones({samples, 3});
  for (int64_t i = 0; i < samples; ++i) batch.indices.push_back(10 + i);
  batch.global_size = 2 * samples;
  batch.position = {1, 7};
  return batch;
}

TEST(ModelBlocks, ComputeWhatForwardDoes) {
  const Model model = model_factory<Net>()();
  ASSERT_EQ(model.blocks.size(), 2U);
  EXPECT_NO_THROW(check(model));
  const Batch batch = batch_of(5);
  EXPECT_TRUE(at::equal(output_of(model, batch), output_of(model.blocks, {batch.data})));
}

TEST(ModelBlocks, AreCheckedByName) {
  const auto refused = [](auto change) {
    Model model = model_factory<Net>()();
    change(model);
    return message_of(ErrorCode::invalid_argument, [&] { check(model); });
  };
  EXPECT_THAT(refused([](Model& m) { m.module.reset(); }), HasSubstr("no module"));
  EXPECT_THAT(refused([](Model& m) { m.forward = Forward(); }), HasSubstr("no forward"));
  EXPECT_THAT(refused([](Model& m) { m.inputs.clear(); }), HasSubstr("0 inputs"));
  EXPECT_THAT(refused([](Model& m) { m.inputs = {"data", "data"}; }),
              HasSubstr("2 inputs, 1 of them different"));
  EXPECT_THAT(refused([](Model& m) { m.blocks[1].forward = nullptr; }), HasSubstr("'two'"));
  EXPECT_THAT(refused([](Model& m) { m.blocks[1].name = "one"; }), HasSubstr("named 'one'"));
  EXPECT_THAT(refused([](Model& m) { m.blocks.pop_back(); }),
              AllOf(HasSubstr("'second.weight'"), HasSubstr("none of its blocks")));
}

TEST(ModelBlocks, OfWhichTheLastGivesSeveralTensorsAreRefused) {
  Model model = model_factory<Net>()();
  model.blocks[1].forward = [](const Tensors& x) { return Tensors{x[0], x[0]}; };
  EXPECT_THAT(message_of(ErrorCode::invalid_argument,
                         [&] { output_of(model.blocks, {batch_of(2).data}); }),
              AllOf(HasSubstr("'two'"), HasSubstr("2 tensors")));
}

struct Layers : torch::nn::SequentialImpl {
  explicit Layers(int64_t width)
      : SequentialImpl({{"in", torch::nn::Linear(3, width)},
                        {"drop", torch::nn::Dropout(0.5)},
                        {"out", torch::nn::Linear(width, 2)}}) {}
};
struct LayersOfTheirOwn : Layers {
  using Layers::Layers;
  at::Tensor forward(const at::Tensor& x) { return Layers::forward(x).tanh(); }
};

std::vector<std::string> names_of(const std::vector<Block>& blocks) {
  std::vector<std::string> names;
  for (const Block& block : blocks) names.push_back(block.name);
  return names;
}

TEST(SequentialModels, AreCutAtEachChild) {
  const Model model = model_factory<Layers>(5)();
  EXPECT_NO_THROW(check(model));
  EXPECT_THAT(names_of(model.blocks), ::testing::ElementsAre("in", "drop", "out"));
  const Batch batch = batch_of(6);
  at::manual_seed(4);
  const at::Tensor whole = output_of(model, batch);
  at::manual_seed(4);
  EXPECT_TRUE(at::equal(whole, output_of(model.blocks, {batch.data})));
  at::manual_seed(4);
  EXPECT_TRUE(at::equal(whole, model.module->as<Layers>()->forward(batch.data)));
  EXPECT_TRUE(model_factory<LayersOfTheirOwn>(5)().blocks.empty());
}

struct Two : torch::nn::Module {
  std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& x) { return {x * 2, x + 1}; }
};
struct Difference : torch::nn::Module {
  at::Tensor forward(std::tuple<at::Tensor, at::Tensor> x) {
    return std::get<0>(x) - std::get<1>(x);
  }
};
struct Product : torch::nn::Module {
  at::Tensor forward(const at::Tensor& a, const at::Tensor& b) { return a * b; }
};
struct Count : torch::nn::Module {
  int forward(const at::Tensor& x) { return static_cast<int>(x.numel()); }
};
struct Filled : torch::nn::Module {
  at::Tensor forward(int count) { return at::ones({count}); }
};

TEST(SequentialModels, PassSeveralTensorsAsTheirForwardDoes) {
  const torch::nn::Sequential net(std::make_shared<Product>(), std::make_shared<Two>(),
                                  std::make_shared<Difference>());
  Model model = model_of(net.ptr());
  model.inputs = {"data", "mask"};
  const Batch batch = batch_of(4);
  const at::Tensor expected = batch.data - 1;  // 2 x - (x + 1); the mask is all 1.
  EXPECT_TRUE(at::equal(output_of(model, batch), expected));
  EXPECT_TRUE(at::equal(output_of(model.blocks, {batch.data, batch.tensor("mask")}), expected));
  EXPECT_EQ(model.blocks[1].forward({batch.data}).size(), 2U);
}

TEST(SequentialModels, WithAChildThatGivesNoTensorsRunWholeAndSaySoWhenCut) {
  const torch::nn::Sequential net(std::make_shared<Count>(), std::make_shared<Filled>());
  const Model model = model_of(net.ptr());
  EXPECT_EQ(output_of(model, batch_of(4)).numel(), 12);
  EXPECT_THAT(message_of(ErrorCode::invalid_argument,
                         [&] { output_of(model.blocks, {batch_of(4).data}); }),
              AllOf(HasSubstr("child '0'"), HasSubstr("gives int")));
  const auto refused = [](const auto& call) {
    return message_of(ErrorCode::invalid_argument, call);
  };
  EXPECT_THAT(refused([] { model_of(torch::nn::Sequential().ptr()); }),
              HasSubstr("without children"));
  EXPECT_THAT(refused([&] { model.forward(Tensors(4, at::ones({1}))); }), HasSubstr("4 tensors"));
}

TEST(ModelInputs, AreTheTensorsOfTheBatchByName) {
  const auto net = std::make_shared<Net>();
  const Model model{net,
                    [net](const Tensors& inputs) { return net->forward(inputs[1] * inputs[0]); },
                    {"mask", "data"}};
  EXPECT_NO_THROW(check(model));
  const Batch batch = batch_of(4);
  EXPECT_TRUE(at::equal(output_of(model, batch), net->forward(batch.data)));
  const Model missing{net, model.forward, {"data", "lengths"}};
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { output_of(missing, batch); }),
              AllOf(HasSubstr("'lengths'"), HasSubstr("data, target, mask")));
}

TEST(ModelInputs, ThatAFunctionOfOneTensorWouldDropAreRefused) {
  const auto net = std::make_shared<Net>();
  const Model model{
      net, [net](const at::Tensor& data) { return net->forward(data); }, {"data", "mask"}};
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { output_of(model, batch_of(2)); }),
              AllOf(HasSubstr("takes one tensor, and gets 2"), HasSubstr("Model::inputs")));
}

TEST(ModelFunctions, MayBeEmptyOrGeneric) {
  const std::function<at::Tensor(const at::Tensor&)> nothing;
  EXPECT_FALSE(Forward(nothing));
  const Forward generic = [](auto x) { return x * 2; };
  EXPECT_EQ(generic(at::ones({1})).item<double>(), 2);
  const std::function<at::Tensor(const at::Tensor&, const at::Tensor&)> no_loss;
  EXPECT_FALSE(LossFunction(no_loss));
  const LossFunction generic_loss = [](auto output, auto target) {
    return output.sum() + target.sum();
  };
  EXPECT_EQ(generic_loss(at::ones({3}), batch_of(3)).item<double>(), 6);
}

TEST(BatchParts, AreViewsOfEveryTensor) {
  const Batch batch = batch_of(5), part = batch.part(1, 3);
  EXPECT_TRUE(at::equal(part.data, batch.data.slice(0, 1, 4)));
  EXPECT_EQ(part.data.const_data_ptr(), batch.data[1].const_data_ptr());
  EXPECT_TRUE(at::equal(part.target, batch.target.slice(0, 1, 4)));
  EXPECT_EQ(part.tensor("mask").size(0), 3);
  EXPECT_EQ(part.indices, (std::vector<int64_t>{11, 12, 13}));
  EXPECT_EQ(part.size(), 3);
  EXPECT_EQ(part.global_size, 10);
  EXPECT_EQ(part.position, (plan::DataPosition{1, 7}));
  EXPECT_EQ(batch.part(5, 0).size(), 0);
}

TEST(LossFunctions, TakeTheTargetOrTheBatch) {
  const Batch batch = batch_of(3);
  const LossFunction of_target = [](const at::Tensor& output, const at::Tensor& target) {
    return output.sum() + target.sum();
  };
  const LossFunction of_batch = [](const at::Tensor& output, const Batch& whole) {
    return output.sum() + whole.tensor("mask").sum();
  };
  const at::Tensor output = at::ones({3});
  EXPECT_EQ(of_target(output, batch).item<double>(), 6);
  EXPECT_EQ(of_batch(output, batch).item<double>(), 12);
  EXPECT_FALSE(LossFunction());
}

}  // namespace
}  // namespace trireme::model_test
