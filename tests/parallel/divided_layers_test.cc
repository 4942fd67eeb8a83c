#include "divided_layers.h"

#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/normalization.h>
#include <trireme/parallel/nn/attention.h>
#include <trireme/parallel/nn/layer_norm.h>
#include <trireme/parallel/nn/linear.h>
#include <trireme/parallel/nn/vocabulary.h>
#include <trireme/tensor/autocast.h>

namespace trireme::tests::divided_layers_test {
namespace {

constexpr int64_t kSamples = 3, kTokens = 8, kWidth = 8, kHeads = 4, kVocabulary = 13;

// All kinds of layers, with whole or with divided tokens between them.
struct Net : torch::nn::Module {
  explicit Net(bool divides_tokens, at::ScalarType type = at::kDouble) : divides(divides_tokens) {
    embedding = register_module("embedding", nn::VocabularyEmbedding(kVocabulary, kWidth));
    norm = register_module("norm", nn::SequenceLayerNorm(kWidth));
    attention = register_module("attention",
                                nn::SelfAttention(nn::SelfAttentionOptions{
                                    .width = kWidth, .heads = kHeads, .divides_tokens = divides}));
    in = register_module("in", nn::ColumnLinear(nn::ColumnLinearOptions{
                                   .in = kWidth, .out = 22, .takes_tokens = divides}));
    out = register_module("out", nn::RowLinear(nn::RowLinearOptions{
                                     .in = 22, .out = kWidth, .gives_tokens = divides}));
    head =
        register_module("head", nn::ColumnLinear(nn::ColumnLinearOptions{.in = kWidth,
                                                                         .out = kVocabulary,
                                                                         .bias = false,
                                                                         .takes_tokens = divides,
                                                                         .gathers = true}));
    to(type);
    fill(*this);
  }
  at::Tensor forward(const at::Tensor& tokens) {
    at::Tensor x = embedding(tokens);
    // The norm belongs to a region of divided tokens.
    x = nn::divide_tokens(x, embedding->ranks());
    x = norm(x);
    if (!divides) x = nn::gather_tokens(x, embedding->ranks());
    x = x + attention(x);
    x = x + out(at::gelu(in(x)));
    const at::Tensor tied =
        embedding->logits(divides ? x : nn::divide_tokens(x, embedding->ranks()));
    return head(x) + tied;
  }
  bool divides;
  nn::VocabularyEmbedding embedding{nullptr};
  nn::SequenceLayerNorm norm{nullptr};
  nn::SelfAttention attention{nullptr};
  nn::ColumnLinear in{nullptr}, head{nullptr};
  nn::RowLinear out{nullptr};
};

at::Tensor tokens_of(uint64_t seed) {
  return at::randint(kVocabulary, {kSamples, kTokens}, at::detail::createCPUGenerator(seed),
                     at::kLong);
}

struct Result {
  at::Tensor output;
  tests::NamedTensors gradients;
};

Result whole_result(bool divides, at::ScalarType type) {
  Net net(divides, type);
  Result result;
  result.output = net.forward(tokens_of(1));
  (result.output * normal(result.output.sizes(), 2, type)).sum().backward();
  result.gradients = gradients_of(net);
  return result;
}

void expect_parity(int size, bool divides, at::ScalarType type, double tolerance) {
  const std::string where = fmt::format("{} ranks, divides {}", size, divides);
  const Result expected = whole_result(divides, type);
  Assembly assembly;
  on_ranks(thread_groups(size), [&](Group& group) {
    const auto ranks = shared(group);
    const auto net = std::make_shared<Net>(divides, type);
    const auto parts = nn::divide_layers(*net, ranks);
    const at::Tensor output = net->forward(tokens_of(1));
    EXPECT_LE(difference(output, expected.output),
              tolerance * expected.output.abs().max().item<double>())
        << where;
    (output * normal(output.sizes(), 2, type)).sum().backward();
    assemble_gradients(*net, group, parts, assembly);
  });
  expect_close(assembly.whole(), expected.gradients, tolerance, where);
}

TEST(DividedLayers, GiveOutputAndGradientsOfWholeLayers) {
  for (const bool divides : {false, true})
    for (const int size : {1, 2, 4}) {
      expect_parity(size, divides, at::kDouble, 1e-12);
      expect_parity(size, divides, at::kFloat, 1e-5);
    }
}

// torch::nn's own layers under the same seed.
TEST(DividedLayers, AreTorchsOwnLayersWhileTheyAreWhole) {
  const auto expect_same = [](auto& mine, auto& torchs, const at::Tensor& input) {
    const auto a = mine->named_parameters(), b = torchs->named_parameters();
    ASSERT_EQ(a.keys(), b.keys());
    for (const std::string& name : a.keys()) EXPECT_TRUE(at::equal(a[name], b[name])) << name;
    const at::Tensor x = mine->forward(input), y = torchs->forward(input);
    EXPECT_TRUE(at::equal(x, y));
    (x * x.detach().cos()).sum().backward();
    (y * y.detach().cos()).sum().backward();
    for (const std::string& name : a.keys())
      EXPECT_TRUE(at::equal(a[name].grad(), b[name].grad())) << name;
  };
  const auto seeded = [](auto make) {
    at::manual_seed(11);
    return make();
  };
  const at::Tensor x = normal({5, 6}, 3, at::kFloat);
  const at::Tensor large = normal({2, 8, 512}, 3, at::kFloat);
  auto torchs_large = seeded([] { return torch::nn::Linear(512, 96); });
  auto column_large = seeded([] { return nn::ColumnLinear(512, 96); });
  auto row_large = seeded([] { return nn::RowLinear(512, 96); });
  expect_same(column_large, torchs_large, large);
  torchs_large->zero_grad();
  expect_same(row_large, torchs_large, large);
  for (const bool bias : {true, false}) {
    auto torchs =
        seeded([&] { return torch::nn::Linear(torch::nn::LinearOptions(6, 10).bias(bias)); });
    auto column = seeded([&] {
      return nn::ColumnLinear(nn::ColumnLinearOptions{.in = 6, .out = 10, .bias = bias});
    });
    auto row = seeded(
        [&] { return nn::RowLinear(nn::RowLinearOptions{.in = 6, .out = 10, .bias = bias}); });
    expect_same(column, torchs, x);
    torchs->zero_grad();
    expect_same(row, torchs, x);
  }
  auto embedding = seeded([] { return nn::VocabularyEmbedding(9, 4); });
  auto torchs_embedding = seeded([] { return torch::nn::Embedding(9, 4); });
  expect_same(embedding, torchs_embedding, at::arange(9));
  nn::SequenceLayerNorm norm(6);
  torch::nn::LayerNorm torchs_norm(torch::nn::LayerNormOptions({6}));
  expect_same(norm, torchs_norm, x);
}

TEST(DividedLayers, KeepOneBoxOfEachParameterButThreeOfQueriesKeysAndValues) {
  on_ranks(thread_groups(2), [](Group& group) {
    const auto ranks = shared(group);
    const auto net = std::make_shared<Net>(true), whole = std::make_shared<Net>(true);
    const auto all = nn::divide_layers(*net, ranks);
    const auto parameters = net->named_parameters(), wholes = whole->named_parameters();
    const std::set<std::string> summed = {"norm.weight", "norm.bias", "attention.out.bias",
                                          "out.bias"};
    ASSERT_EQ(all.size(), parameters.size());
    for (size_t i = 0; i < all.size(); ++i) {
      const nn::ParameterParts& each = all[i];
      EXPECT_EQ(each.name, parameters[i].key());
      EXPECT_EQ(each.sizes(), parameters[i].value().sizes().vec()) << each.name;
      EXPECT_EQ(each.parts.size(), each.name.starts_with("attention.qkv") ? 3U : 1U) << each.name;
      EXPECT_EQ(each.sums_gradients, summed.contains(each.name)) << each.name;
      EXPECT_EQ(each.is_divided(), !summed.contains(each.name)) << each.name;
      for (const plan::TensorSlice& box : each.parts) {
        EXPECT_EQ(box.tensor, each.name);
        EXPECT_NO_THROW(check(box));
      }
      EXPECT_TRUE(at::equal(nn::part_of(wholes[each.name], each), parameters[i].value()));
      EXPECT_TRUE(parameters[i].value().is_contiguous() && parameters[i].value().requires_grad());
    }
    const int64_t first = group.rank() * kWidth / 2;
    EXPECT_TRUE(at::equal(parameters["attention.qkv.weight"].narrow(0, kWidth / 2, kWidth / 2),
                          wholes["attention.qkv.weight"].narrow(0, kWidth + first, kWidth / 2)));
  });
}

TEST(DividedLayers, MayBeDividedAgainByOtherRanks) {
  const auto net0 = std::make_shared<Net>(true), net1 = std::make_shared<Net>(true);
  on_ranks(thread_groups(2), [&](Group& group) {
    nn::divide_layers(group.rank() == 0 ? *net0 : *net1, shared(group));
  });
  const auto alone = thread_groups(1);
  const auto parts = nn::divide_layers(*net0, alone[0]);
  Net fresh(true);
  for (const nn::ParameterParts& each : parts) {
    EXPECT_FALSE(each.is_divided()) << each.name;
    EXPECT_EQ(each.sizes(), net0->named_parameters()[each.name].sizes().vec());
    // The values come from a state that is loaded.
    const at::NoGradGuard no_grad;
    net0->named_parameters()[each.name].copy_(fresh.named_parameters()[each.name]);
  }
  EXPECT_TRUE(at::equal(net0->forward(tokens_of(1)), fresh.forward(tokens_of(1))));
}

TEST(DividedLayers, GiveOnlyMemoryWhereValuesComeLater) {
  on_ranks(thread_groups(2), [](Group& group) {
    const auto net = std::make_shared<Net>(true);
    int made = 0;
    const auto parts = nn::divide_layers(
        *net, shared(group), [&](const at::Tensor& whole, const nn::ParameterParts& each) {
          ++made;
          return at::full(each.sizes(), 7, whole.options());
        });
    EXPECT_EQ(made, 8);  // The replicated ones stay as they are.
    EXPECT_TRUE(net->in->weight.eq(7).all().item<bool>());
    for (const nn::ParameterParts& each : parts)
      EXPECT_EQ(net->named_parameters()[each.name].sizes().vec(), each.sizes()) << each.name;
  });
}

template <typename Make>
std::string refusal(int size, Make make) {
  const auto endings = endings_of(thread_groups(size), [&](Group& group) {
    torch::nn::Sequential holder(make());
    nn::divide_layers(*holder, shared(group));
  });
  for (const Ending& ending : endings) {
    EXPECT_TRUE(ending.failed);
    EXPECT_EQ(ending.code, ErrorCode::invalid_argument) << ending.what;
  }
  return endings.front().what;
}

TEST(DividedLayers, RefuseSizesThatDoNotDivideAndNameLayerAndSize) {
  const auto has = [](const std::string& what, std::initializer_list<const char*> words) {
    for (const char* word : words) EXPECT_NE(what.find(word), std::string::npos) << what;
  };
  has(refusal(4,
              [] { return nn::SelfAttention(nn::SelfAttentionOptions{.width = 12, .heads = 6}); }),
      {"'0.qkv'", "6 heads", "4 ranks", "model.heads"});
  has(refusal(3, [] { return nn::ColumnLinear(4, 2); }), {"'0'", "2 columns", "3 ranks"});
  has(refusal(3, [] { return nn::RowLinear(2, 4); }), {"'0'", "2 rows", "3 ranks"});
  has(refusal(3, [] { return nn::VocabularyEmbedding(2, 4); }),
      {"'0'", "2 rows of the vocabulary", "3 ranks"});
  EXPECT_THROW(nn::ColumnLinear(nn::ColumnLinearOptions{.in = 2, .out = 7, .sections = 3}), Error);
  EXPECT_THROW(nn::SelfAttention(nn::SelfAttentionOptions{.width = 7, .heads = 2}), Error);
  EXPECT_THROW(nn::RowLinear(0, 4), Error);
}

TEST(DividedLayers, ChangeNothingIfOneCannotBeDivided) {
  const auto groups = thread_groups(4);
  torch::nn::Sequential layers(nn::ColumnLinear(4, 8), nn::VocabularyEmbedding(2, 4));
  EXPECT_THROW(nn::divide_layers(*layers, groups[0]), Error);
  EXPECT_EQ(layers->named_parameters()["0.weight"].size(0), 8);
  EXPECT_EQ(layers[0]->as<nn::ColumnLinear>()->ranks(), nullptr);
}

TEST(DividedLayers, TellModelsWithoutThem) {
  torch::nn::Sequential plain(torch::nn::Linear(2, 2));
  try {
    nn::require_layers_to_divide(*plain, "cnn");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("'cnn'"), std::string::npos) << error.what();
  }
  Net net(true);
  EXPECT_NO_THROW(nn::require_layers_to_divide(net, "net"));
}

TEST(DividedLayers, RefuseTokensThatDoNotDivide) {
  for (const Ending& ending : endings_of(thread_groups(2), [](Group& group) {
         nn::divide_tokens(at::zeros({4, 5, 6}), shared(group));
       })) {
    EXPECT_EQ(ending.code, ErrorCode::invalid_argument);
    EXPECT_NE(ending.what.find("5 tokens"), std::string::npos) << ending.what;
  }
}

TEST(DividedLayers, RefuseTokensOutsideTheVocabulary) {
  for (const Ending& ending : endings_of(thread_groups(2), [](Group& group) {
         const auto layer = std::make_shared<nn::VocabularyEmbeddingImpl>(6, 2);
         nn::divide_layers(*layer, shared(group));
         layer->forward(at::full({2}, 6, at::kLong));
       })) {
    EXPECT_EQ(ending.code, ErrorCode::invalid_argument);
    EXPECT_NE(ending.what.find("token 6"), std::string::npos) << ending.what;
  }
}

TEST(DividedLayers, DivideATiedTensorOnceUnderItsFirstName) {
  struct Tied : torch::nn::Module {
    Tied() {
      output = register_parameter("output", embedding->weight);
      register_module("embedding", embedding);
      register_module("again", embedding);
    }
    nn::VocabularyEmbedding embedding{6, 4};
    at::Tensor output;
  };
  on_ranks(thread_groups(2), [](Group& group) {
    const auto net = std::make_shared<Tied>();
    const auto parts = nn::divide_layers(*net, shared(group));
    ASSERT_EQ(parts.size(), 1U);
    EXPECT_EQ(parts[0].name, "output");
    EXPECT_EQ(parts[0].parts[0].describe(),
              group.rank() == 0 ? "output[0:3, 0:4] of [6, 4]" : "output[3:6, 0:4] of [6, 4]");
    EXPECT_EQ(net->output.size(0), 3);
    EXPECT_TRUE(net->output.is_same(net->embedding->weight));
  });
}

TEST(DividedLayers, GiveGradientsOfGradients) {
  const at::Tensor x = normal({4, 6}, 5);
  const auto penalty_gradients = [&](torch::nn::Module& layers, auto&& forward) {
    const at::Tensor input = x.detach().requires_grad_(true);
    const at::Tensor gradient = torch::autograd::grad({forward(input).square().sum()}, {input}, {},
                                                      std::nullopt, /*create_graph=*/true)[0];
    gradient.square().sum().backward();
    return gradients_of(layers);
  };
  const auto make = [] {
    torch::nn::Sequential layers(nn::ColumnLinear(6, 10), nn::RowLinear(10, 3));
    layers->to(at::kDouble);
    fill(*layers);
    return layers;
  };
  const auto run = [](torch::nn::Sequential& layers, const at::Tensor& input) {
    return layers[1]->as<nn::RowLinear>()->forward(
        at::tanh(layers[0]->as<nn::ColumnLinear>()->forward(input)));
  };
  auto whole = make();
  tests::NamedTensors expected =
      penalty_gradients(*whole, [&](const at::Tensor& input) { return run(whole, input); });
  Assembly assembly;
  on_ranks(thread_groups(2), [&](Group& group) {
    auto layers = make();
    const auto parts = nn::divide_layers(*layers, shared(group));
    penalty_gradients(*layers, [&](const at::Tensor& input) { return run(layers, input); });
    assemble_gradients(*layers, group, parts, assembly);
  });
  expect_close(assembly.whole(), expected, 1e-12, "penalty");
}

TEST(DividedLayers, RepeatTheirBits) {
  std::vector<tests::NamedTensors> runs;
  for (int run = 0; run < 2; ++run) {
    Assembly assembly;
    on_ranks(thread_groups(4), [&](Group& group) {
      const auto net = std::make_shared<Net>(true, at::kFloat);
      const auto parts = nn::divide_layers(*net, shared(group));
      net->forward(tokens_of(1)).square().sum().backward();
      assemble_gradients(*net, group, parts, assembly);
    });
    runs.push_back(assembly.whole());
  }
  for (const auto& [name, tensor] : runs[0]) EXPECT_TRUE(at::equal(tensor, runs[1][name])) << name;
}

TEST(DividedLayers, ComputeUnderAutocast) {
  const auto loss_of = [](Net& net) {
    const Autocast autocast(at::kBFloat16);
    return net.forward(tokens_of(1)).to(at::kFloat).square().mean();
  };
  Net whole(true, at::kFloat);
  const at::Tensor expected = loss_of(whole);
  expected.backward();
  Assembly assembly;
  on_ranks(thread_groups(2), [&](Group& group) {
    const auto net = std::make_shared<Net>(true, at::kFloat);
    const auto parts = nn::divide_layers(*net, shared(group));
    const at::Tensor loss = loss_of(*net);
    EXPECT_NEAR(loss.item<double>(), expected.item<double>(), 0.02 * expected.item<double>());
    loss.backward();
    assemble_gradients(*net, group, parts, assembly);
  });
  for (const auto& [name, gradient] : gradients_of(whole)) {
    const double error = (assembly.whole().at(name) - gradient).norm().item<double>();
    EXPECT_LE(error, 0.05 * gradient.norm().item<double>()) << name;
  }
}

TEST(DividedLayers, CopiesOfThemAreOfTheirKind) {
  on_ranks(thread_groups(2), [](Group& group) {
    const auto layer = std::make_shared<nn::ColumnLinearImpl>(4, 6);
    nn::divide_layers(*layer, shared(group));
    const auto copy = std::dynamic_pointer_cast<nn::ColumnLinearImpl>(layer->clone());
    ASSERT_NE(copy, nullptr);
    EXPECT_TRUE(at::equal(copy->weight, layer->weight) && !copy->weight.is_same(layer->weight));
    EXPECT_EQ(copy->ranks(), layer->ranks());
  });
}

}  // namespace
}  // namespace trireme::tests::divided_layers_test
