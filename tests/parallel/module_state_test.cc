#include "models.h"

#include <torch/nn/modules/batchnorm.h>
// This header must come after those of torch.
#include <gmock/gmock.h>

namespace trireme::module_state_test {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

struct Tied : torch::nn::Module {
  Tied() {
    in = register_module("in", torch::nn::Linear(4, 4));
    out = register_module("out", torch::nn::Linear(4, 4));
    out->weight = out->register_parameter("weight2", in->weight);
    norm = register_module("norm", torch::nn::BatchNorm1d(4));
    mask = register_buffer("mask", at::ones({2}, at::kBool));
  }
  torch::nn::Linear in{nullptr}, out{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  at::Tensor mask;
};

TEST(ModuleState, ListsATiedParameterOnceUnderItsFirstName) {
  const ModuleState state = state_of(Tied());
  EXPECT_THAT(names_of(state.parameters), ElementsAre("in.weight", "in.bias", "out.weight",
                                                      "out.bias", "norm.weight", "norm.bias"));
  EXPECT_THAT(state.aliases, ElementsAre(Pair("out.weight2", "in.weight")));
}

TEST(ModuleState, ListsBuffersApart) {
  EXPECT_THAT(
      names_of(state_of(Tied()).buffers),
      ElementsAre("mask", "norm.running_mean", "norm.running_var", "norm.num_batches_tracked"));
}

TEST(ModuleState, KeepsFrozenParametersAndSaysSo) {
  tests::Mlp net;
  net.first->bias.requires_grad_(false);
  const auto specs = specs_of(state_of(net).parameters);
  ASSERT_EQ(specs.size(), 4u);
  EXPECT_TRUE(specs[0].trainable);
  EXPECT_FALSE(specs[1].trainable);
  EXPECT_EQ(specs[0].describe(), "float64[10, 6]");
}

TEST(ModuleState, HoldsTheModulesOwnTensors) {
  tests::Mlp net;
  const ModuleState state = state_of(net);
  EXPECT_TRUE(state.parameters[0].tensor.is_same(net.first->weight));
}

TEST(ModuleState, AModuleWithoutBiasHasNoUndefinedEntries) {
  const torch::nn::Linear linear(torch::nn::LinearOptions(3, 2).bias(false));
  EXPECT_THAT(names_of(state_of(*linear).parameters), ElementsAre("weight"));
}

class Sha256OfTensors : public ::testing::Test {
 protected:
  std::vector<NamedTensor> tensors_{{"a", at::arange(6, at::kFloat).view({2, 3})},
                                    {"b", at::ones({2}, at::kHalf)}};
  const std::string before_ = sha256_of(tensors_);
};
TEST_F(Sha256OfTensors, IsTheSameForEqualCopies) {
  for (auto& [name, tensor] : tensors_) tensor = tensor.clone();
  EXPECT_EQ(sha256_of(tensors_), before_);
}
TEST_F(Sha256OfTensors, ChangesWithAnyBit) {
  for (int byte = 0; byte < 24; ++byte) {
    auto* bytes = static_cast<uint8_t*>(tensors_[0].tensor.mutable_data_ptr());
    bytes[byte] ^= 1;
    EXPECT_NE(sha256_of(tensors_), before_) << byte;
    bytes[byte] ^= 1;
  }
}
TEST_F(Sha256OfTensors, ChangesWithTheSignOfZero) {
  tensors_[0].tensor[0][0] = -0.0;
  EXPECT_NE(sha256_of(tensors_), before_);
}
TEST_F(Sha256OfTensors, ChangesWithNameShapeTypeAndOrder) {
  auto renamed = tensors_, reshaped = tensors_, retyped = tensors_, reordered = tensors_;
  renamed[0].name = "c";
  reshaped[0].tensor = tensors_[0].tensor.view({3, 2});
  retyped[1].tensor = tensors_[1].tensor.view(at::kBFloat16);
  std::swap(reordered[0], reordered[1]);
  for (const auto& other : {renamed, reshaped, retyped, reordered})
    EXPECT_NE(sha256_of(other), before_);
}
TEST_F(Sha256OfTensors, DoesNotDependOnTheLayoutInMemory) {
  tensors_[0].tensor = tensors_[0].tensor.t().contiguous().t();
  EXPECT_EQ(sha256_of(tensors_), before_);
}

}  // namespace
}  // namespace trireme::module_state_test
