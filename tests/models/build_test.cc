#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <trireme/base/error.h>
#include <trireme/models/build.h>
#include <cmath>
#include <map>

#include "cases.h"

namespace trireme::models::build_test {
namespace {

std::vector<Case> cases() {
  return {
      {{.name = "mlp", .hidden = {5}}, {{3}, 2}},
      {{.name = "mlp", .hidden = {16, 8, 4}, .dropout = 0.5}, {{1, 8, 8}, 10}},
      {{.name = "mlp"}, {{784}, 10}},
      {{.name = "tiny"}, {{64}, 10}},
      {{.name = "cnn"}, {{3, 32, 32}, 10}},
      {{.name = "cnn", .channels = {8, 16}, .batch_norm = 0}, {{1, 8, 8}, 10}},
      {{.name = "resnet18"}, {{1, 8, 8}, 10}},
      {{.name = "resnet18"}, {{3, 65, 20}, 7}},
      {{.name = "resnet50", .zero_init = 1}, {{3, 16, 16}, 10}},
      {{.name = "cnn",
        .channels = {4, 4, 8},
        .strides = {1, 2, 2},
        .batch_norm = 1,
        .dropout = 0.2},
       {{2, 1, 1}, 3}},
      {{.name = "gpt", .layers = 2, .width = 32, .heads = 4, .vocabulary = 50, .context = 12},
       {{12}, 50}},
      {{.name = "gpt", .layers = 1, .width = 16, .heads = 1, .vocabulary = 7, .context = 3},
       {{2}, 7}},
      {{.name = "gpt",
        .layers = 2,
        .width = 32,
        .heads = 4,
        .vocabulary = 50,
        .context = 12,
        .tied = 1},
       {{12}, 50}},
      {{.name = "amoebanet", .layers = 3, .width = 16}, {{3, 33, 40}, 10}},
      {{.name = "amoebanet", .layers = 6, .width = 8}, {{1, 1, 1}, 4}},
  };
}

Model small_gpt() {
  return make_factory(
      {.name = "gpt", .layers = 2, .width = 32, .heads = 4, .vocabulary = 50, .context = 12},
      {{12}, 50})();
}

TEST(ModelBuild, KnowsEveryModelThatShips) {
  for (const std::string& name : model_names())
    EXPECT_NO_THROW(make_factory({.name = name}, default_input({.name = name}))) << name;
}

TEST(ModelBuild, HasExactlyTheParametersOfTheShapes) {
  for (const Case& c : cases()) {
    const auto specs = parameter_shapes(c.options, c.input);
    const auto real = make_factory(c.options, c.input)().module->named_parameters();
    ASSERT_EQ(real.size(), specs.size()) << c.options.name;
    for (size_t i = 0; i < specs.size(); ++i) {
      EXPECT_EQ(real[i].key(), specs[i].name);
      EXPECT_EQ(real[i].value().sizes().vec(), specs[i].shape) << specs[i].name;
    }
  }
}

TEST(ModelBuild, GivesLogitsForEverySampleAndAGradientToEveryParameter) {
  for (const Case& c : cases()) {
    const Model model = make_factory(c.options, c.input)();
    const at::Tensor logits = model.forward(random_batch(c, 3));
    const bool gpt = c.options.name == "gpt";
    EXPECT_EQ(logits.sizes().vec(),
              (std::vector<int64_t>{gpt ? 3 * c.input.shape[0] : 3, c.input.classes}))
        << c.options.name;
    logits.square().sum().backward();
    for (const auto& parameter : model.module->named_parameters())
      EXPECT_TRUE(parameter.value().grad().defined()) << parameter.key();
  }
}

// The same random numbers are drawn in both, so dropout and batch norms are compared too.
TEST(ModelBuild, HasBlocksThatComputeWhatForwardDoes) {
  for (const Case& c : cases()) {
    const Model model = make_factory(c.options, c.input)();
    EXPECT_NO_THROW(check(model)) << c.options.name;
    ASSERT_GE(model.blocks.size(), 2U) << c.options.name;
    const at::Tensor data = random_batch(c, 3);
    for (const bool is_training : {true, false}) {
      model.module->train(is_training);
      at::manual_seed(3);
      const at::Tensor whole = model.forward(data);
      at::manual_seed(3);
      EXPECT_TRUE(at::equal(whole, output_of(model.blocks, {data}))) << c.options.name;
    }
  }
}

TEST(ModelBuild, HasTheBlocksOfTheShapes) {
  for (const Case& c : cases()) {
    const Model model = make_factory(c.options, c.input)();
    std::map<const void*, std::string> names;
    for (const auto& parameter : model.module->named_parameters())
      names[parameter.value().unsafeGetTensorImpl()] = parameter.key();
    const std::vector<BlockSize> sizes = block_sizes(c.options, c.input);
    ASSERT_EQ(sizes.size(), model.blocks.size()) << c.options.name;
    for (size_t i = 0; i < sizes.size(); ++i) {
      BlockSize real{.name = model.blocks[i].name};
      for (const auto& module : model.blocks[i].modules)
        for (const at::Tensor& parameter : module->parameters()) {
          real.elements += parameter.numel();
          real.parameters.push_back(names[parameter.unsafeGetTensorImpl()]);
        }
      EXPECT_EQ(sizes[i].name, real.name);
      EXPECT_EQ(sizes[i].elements, real.elements) << real.name;
      EXPECT_EQ(sizes[i].parameters, real.parameters) << real.name;
    }
  }
}

TEST(ModelBuild, TakesABatchOfNoSamples) {
  for (const Case& c : cases()) {
    const Model model = make_factory(c.options, c.input)();
    model.module->eval();
    EXPECT_EQ(model.forward(random_batch(c, 0)).size(0), 0) << c.options.name;
  }
}

TEST(ModelBuild, StartsFromTheSameValuesForTheSameSeed) {
  for (const Case& c : cases()) {
    const ModelFactory factory = make_factory(c.options, c.input);
    at::manual_seed(5);
    const auto one = factory().module->parameters();
    at::manual_seed(5);
    const auto two = factory().module->parameters();
    for (size_t i = 0; i < one.size(); ++i)
      EXPECT_TRUE(at::equal(one[i], two[i])) << c.options.name;
  }
}

TEST(ModelBuild, DropsOutOnlyWhileTraining) {
  const Model model = make_factory({.name = "mlp", .hidden = {64}, .dropout = 0.5}, {{8}, 4})();
  const at::Tensor data = at::randn({2, 8});
  EXPECT_FALSE(at::equal(model.forward(data), model.forward(data)));
  model.module->eval();
  EXPECT_TRUE(at::equal(model.forward(data), model.forward(data)));
}

TEST(ModelBuild, RefusesBadOptionsBeforeAnyModuleIsMade) {
  EXPECT_THROW(make_factory({.name = "cnn"}, {{784}, 10}), Error);
  EXPECT_THROW(make_factory({.name = "cnnn"}, {{1, 8, 8}, 10}), Error);
}

TEST(MlpModel, IsTheSequentialThatItsNamesDescribe) {
  const Model model = make_factory({.name = "mlp", .hidden = {16, 8}}, {{1, 2, 3}, 4})();
  torch::nn::Sequential same(torch::nn::Linear(6, 16), torch::nn::ReLU(), torch::nn::Linear(16, 8),
                             torch::nn::ReLU(), torch::nn::Linear(8, 4));
  at::NoGradGuard no_grad;
  for (auto& parameter : same->named_parameters())
    parameter.value().copy_(model.module->named_parameters()[parameter.key()]);
  const at::Tensor data = at::randn({5, 1, 2, 3});
  EXPECT_TRUE(at::equal(model.forward(data), same->forward(data.flatten(1))));
}

TEST(ResnetModel, StartsEachBlockAsTheIdentityWithZeroInit) {
  const Model model = make_factory({.name = "resnet18", .zero_init = 1}, {{1, 8, 8}, 10})();
  const auto p = model.module->named_parameters();
  for (const std::string block : {"layer1.0", "layer4.1"}) {
    EXPECT_EQ(p[block + ".bn2.weight"].abs().max().item<float>(), 0) << block;
    EXPECT_EQ(p[block + ".bn1.weight"].min().item<float>(), 1) << block;
  }
}

TEST(ResnetModel, HalvesLargeImagesTwiceBeforeTheFirstBlockAndSmallOnesNever) {
  // The gradient of the first stage's convolution shows the size of its input: if one pixel is
  // left, only the middle of the window has a gradient.
  const auto side_windows_used = [](int64_t side) {
    const Model model = make_factory({.name = "resnet18"}, {{1, side, side}, 10})();
    model.forward(at::randn({2, 1, side, side})).square().sum().backward();
    return model.module->named_parameters()["layer1.0.conv1.weight"]
               .grad()
               .select(2, 0)
               .abs()
               .max()
               .item<float>() > 0;
  };
  EXPECT_TRUE(side_windows_used(4));
  EXPECT_FALSE(side_windows_used(1));
  const auto stem = [](int64_t side) {
    return make_factory({.name = "resnet18"}, {{3, side, side}, 10})()
        .module->named_parameters()["conv1.weight"]
        .size(2);
  };
  EXPECT_EQ(stem(64), 3);
  EXPECT_EQ(stem(65), 7);
}

TEST(CnnModel, AveragesOverTheWholeImage) {
  const Model model = make_factory(
      {.name = "cnn", .channels = {4, 6}, .strides = {1, 2}, .batch_norm = 0}, {{1, 8, 8}, 3})();
  const auto p = model.module->named_parameters();
  const at::Tensor images = at::randn({2, 1, 8, 8});
  at::Tensor x = at::relu(at::conv2d(images, p["features.0.weight"], p["features.0.bias"], 1, 1));
  x = at::relu(at::conv2d(x, p["features.2.weight"], p["features.2.bias"], 2, 1));
  x = at::adaptive_avg_pool2d(x, {1, 1}).flatten(1);
  EXPECT_TRUE(at::allclose(model.forward(images),
                           at::linear(x, p["classifier.weight"], p["classifier.bias"])));
}

TEST(GptModel, HasTheTiedTensorInItsFirstAndItsLastBlock) {
  const Model model = make_factory({.name = "gpt",
                                    .layers = 1,
                                    .width = 16,
                                    .heads = 2,
                                    .vocabulary = 20,
                                    .context = 6,
                                    .tied = 1},
                                   {{6}, 20})();
  const at::Tensor tied = model.module->named_parameters()["token_embedding.weight"];
  EXPECT_FALSE(model.module->named_parameters().contains("head.weight"));
  const auto has_it = [&](const Block& block) {
    for (const auto& module : block.modules)
      for (const at::Tensor& parameter : module->parameters())
        if (parameter.is_same(tied)) return true;
    return false;
  };
  EXPECT_TRUE(has_it(model.blocks.front()));
  EXPECT_FALSE(has_it(model.blocks[1]));
  EXPECT_TRUE(has_it(model.blocks.back()));
  // Its gradient is the sum of those of both uses.
  const at::Tensor tokens = at::randint(20, {2, 6}, at::kLong);
  const auto loss = [&](const at::Tensor& logits) { return logits.square().mean(); };
  loss(model.forward(tokens)).backward();
  Tensors x = {tokens};
  for (size_t i = 0; i + 1 < model.blocks.size(); ++i) x = model.blocks[i].forward(x);
  const at::Tensor cut = x[0].detach().requires_grad_();
  const at::Tensor of_head =
      torch::autograd::grad({loss(model.blocks.back().forward({cut})[0])}, {tied, cut})[0];
  EXPECT_FALSE(at::allclose(tied.grad(), of_head));
  const at::Tensor unused =
      at::ones({20}).index_fill_(0, tokens.flatten(), 0).unsqueeze(1);  // Rows of other tokens.
  EXPECT_TRUE(at::allclose(tied.grad() * unused, of_head * unused, 1e-5, 1e-7));
}

TEST(GptModel, StartsWithSmallLogitsIfTied) {
  const Model model = make_factory({.name = "gpt",
                                    .layers = 2,
                                    .width = 256,
                                    .heads = 4,
                                    .vocabulary = 100,
                                    .context = 12,
                                    .tied = 1},
                                   {{12}, 100})();
  at::NoGradGuard no_grad;
  const at::Tensor tokens = at::randint(100, {4, 12}, at::kLong);
  EXPECT_LT(model.forward(tokens).std().item<float>(), 1);
}

TEST(AmoebanetModel, PassesTheOutputOfTheCellBeforeOn) {
  const Model model =
      make_factory({.name = "amoebanet", .layers = 3, .width = 16}, {{3, 64, 64}, 10})();
  model.module->eval();
  at::NoGradGuard no_grad;
  std::vector<Tensors> given;
  Tensors x = {at::randn({2, 3, 64, 64})};
  for (const Block& block : model.blocks) given.push_back(x = block.forward(x));
  ASSERT_EQ(given.size(), 9U);  // Stem, seven cells, head.
  EXPECT_EQ(given[0].size(), 1U);
  for (size_t i = 1; i + 2 < given.size(); ++i) {
    ASSERT_EQ(given[i].size(), 2U) << i;
    EXPECT_TRUE(given[i][1].is_same(given[i - 1][0])) << i;
  }
  EXPECT_EQ(given[7].size(), 1U);
  // A reduction cell gives 3 times its filters and halves the image; a normal cell 4 times.
  const auto shape = [&](size_t i) { return given[i][0].sizes().vec(); };
  EXPECT_EQ(shape(0), (std::vector<int64_t>{2, 4, 32, 32}));
  EXPECT_EQ(shape(1), (std::vector<int64_t>{2, 3 * 8, 16, 16}));
  EXPECT_EQ(shape(2), (std::vector<int64_t>{2, 3 * 16, 8, 8}));
  EXPECT_EQ(shape(3), (std::vector<int64_t>{2, 4 * 16, 8, 8}));
  EXPECT_EQ(shape(4), (std::vector<int64_t>{2, 3 * 32, 4, 4}));
  EXPECT_EQ(shape(5), (std::vector<int64_t>{2, 4 * 32, 4, 4}));
  EXPECT_EQ(shape(7), (std::vector<int64_t>{2, 4 * 64, 2, 2}));
}

TEST(GptModel, NeverLooksAhead) {
  const Model model = small_gpt();
  at::NoGradGuard no_grad;
  const at::Tensor tokens = at::randint(50, {1, 12}, at::kLong);
  at::Tensor changed = tokens.clone();
  changed[0][7] = (tokens[0][7] + 1) % 50;
  const at::Tensor before = model.forward(tokens), after = model.forward(changed);
  EXPECT_TRUE(at::allclose(before.narrow(0, 0, 7), after.narrow(0, 0, 7)));
  EXPECT_FALSE(at::allclose(before.narrow(0, 7, 5), after.narrow(0, 7, 5)));
}

TEST(GptModel, GivesTheResultOfTheWrittenOutFormula) {
  const Model model = make_factory(
      {.name = "gpt", .layers = 1, .width = 8, .heads = 2, .vocabulary = 20, .context = 6},
      {{5}, 20})();
  const auto p = model.module->named_parameters();
  const auto norm = [&](const std::string& name, const at::Tensor& x) {
    return at::layer_norm(x, {8}, p[name + ".weight"], p[name + ".bias"]);
  };
  const auto linear = [&](const std::string& name, const at::Tensor& x) {
    return at::linear(x, p["blocks.0." + name + ".weight"], p["blocks.0." + name + ".bias"]);
  };
  const at::Tensor tokens = at::randint(20, {5}, at::kLong);
  at::Tensor x = p["token_embedding.weight"].index_select(0, tokens) +
                 p["position_embedding.weight"].narrow(0, 0, 5);
  const auto qkv = linear("qkv", norm("blocks.0.attention_norm", x)).chunk(3, 1);
  std::vector<at::Tensor> heads;
  for (int64_t head = 0; head < 2; ++head) {
    const at::Tensor q = qkv[0].narrow(1, 4 * head, 4), k = qkv[1].narrow(1, 4 * head, 4),
                     v = qkv[2].narrow(1, 4 * head, 4);
    const at::Tensor ahead = at::ones({5, 5}).triu(1).to(at::kBool);
    heads.push_back(at::softmax((q.matmul(k.t()) / 2).masked_fill(ahead, -INFINITY), 1).matmul(v));
  }
  x = x + linear("attention_out", at::cat(heads, 1));
  x = x + linear("mlp_out", at::gelu(linear("mlp_in", norm("blocks.0.mlp_norm", x))));
  const at::Tensor expected = at::linear(norm("final_norm", x), p["head.weight"]);
  EXPECT_TRUE(at::allclose(model.forward(tokens.unsqueeze(0)), expected, 1e-4, 1e-5));
}

}  // namespace
}  // namespace trireme::models::build_test
