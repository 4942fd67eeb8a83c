// Weights of files for models.
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/serialize.h>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <trireme/checkpoint/pytorch_file.h>
#include <trireme/parallel/load_weights.h>
#include <trireme/parallel/module_state.h>
#include <trireme/tensor/deferred_model.h>
#include <trireme/tensor/hollow.h>

#include "../base/expect_error.h"
#include "../checkpoint/checkpoint_testing.h"

namespace trireme::load_weights_test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Net : torch::nn::Module {
  explicit Net(int64_t classes = 3, bool is_tied = false)
      : out(register_module("out", torch::nn::Linear(4, classes))) {
    if (is_tied) register_parameter("again", in->weight);
  }
  torch::nn::Linear in = register_module("in", torch::nn::Linear(2, 4));
  torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(4));
  torch::nn::Linear out;
};

class LoadWeights : public checkpoint::TemporaryFolder {
 protected:
  // In the format of `trireme ckpt convert`.
  fs::path written(const std::vector<NamedTensor>& tensors) const {
    std::vector<checkpoint::TensorView> views;
    const auto specs = specs_of(tensors);
    for (size_t i = 0; i < tensors.size(); ++i)
      views.push_back({specs[i],
                       {static_cast<const std::byte*>(tensors[i].tensor.const_data_ptr()),
                        static_cast<size_t>(specs[i].bytes())}});
    checkpoint::write_pytorch(folder_ / "w.pt", views);
    return folder_ / "w.pt";
  }
  static std::vector<NamedTensor> all_of(const torch::nn::Module& module) {
    ModuleState state = state_of(module);
    state.parameters.insert(state.parameters.end(), state.buffers.begin(), state.buffers.end());
    return state.parameters;
  }
  static void expect_equal(const torch::nn::Module& a, const torch::nn::Module& b) {
    const auto of_a = all_of(a), of_b = all_of(b);
    ASSERT_EQ(of_a.size(), of_b.size());
    for (size_t i = 0; i < of_a.size(); ++i) EXPECT_TRUE(of_a[i].tensor.equal(of_b[i].tensor));
  }
};

TEST_F(LoadWeights, ReadsAnArchiveOfTorchSave) {
  const auto saved = std::make_shared<Net>();
  saved->norm->running_mean.fill_(0.25);
  torch::save(saved, folder_ / "theirs.pt");
  Net net;
  const LoadedWeights found = load_weights(net, folder_ / "theirs.pt");
  expect_equal(net, *saved);
  EXPECT_EQ(found.loaded.size(), all_of(net).size());
  EXPECT_THAT(found.missing, IsEmpty());
  EXPECT_THAT(found.unexpected, IsEmpty());
}

TEST_F(LoadWeights, ABackboneGetsANewHeadByRules) {
  const Net saved(5);
  std::vector<NamedTensor> tensors = all_of(saved);
  for (NamedTensor& tensor : tensors) tensor.name = "module." + tensor.name;
  const fs::path file = written(tensors);
  Net net(3);
  const at::Tensor head = net.out->weight.detach().clone();
  const LoadedWeights found = load_weights(
      net, file,
      {.rename = {{"^module\\.", ""}}, .drop = {"\\.out\\."}, .allow_missing = {"^out\\."}});
  EXPECT_TRUE(net.in->weight.equal(saved.in->weight));
  EXPECT_TRUE(net.out->weight.equal(head));
  EXPECT_THAT(found.missing, ElementsAre("out.weight", "out.bias"));
}

TEST_F(LoadWeights, WhatDoesNotFitIsNamedAndNothingIsWritten) {
  Net net(3);
  const at::Tensor before = net.in->weight.detach().clone();
  std::vector<NamedTensor> tensors = all_of(Net(5));
  std::erase_if(tensors, [](const NamedTensor& each) { return each.name == "in.bias"; });
  tensors.push_back({"other", at::zeros({2})});
  const fs::path file = written(tensors);
  EXPECT_THAT(
      message_of(ErrorCode::invalid_argument, [&] { load_weights(net, file); }),
      AllOf(HasSubstr("the file lacks in.bias"), HasSubstr("the model lacks other"),
            HasSubstr("out.weight is float32[3, 4] in the model and float32[5, 4] in the file")));
  EXPECT_TRUE(net.in->weight.equal(before));
}

TEST_F(LoadWeights, FloatingPointIsConvertedAndOtherTypesAreRefused) {
  Net net;
  std::vector<NamedTensor> tensors = all_of(net);
  for (NamedTensor& tensor : tensors) {
    tensor.tensor = tensor.tensor.detach().clone();
    if (tensor.name == "in.weight") tensor.tensor = at::full({4, 2}, 0.5, at::kDouble);
  }
  load_weights(net, written(tensors));
  EXPECT_TRUE(net.in->weight.equal(at::full({4, 2}, 0.5)));
  for (NamedTensor& tensor : tensors)
    if (tensor.name == "in.weight") tensor.tensor = at::ones({4, 2}, at::kLong);
  EXPECT_THAT(
      message_of(ErrorCode::invalid_argument, [&] { load_weights(net, written(tensors)); }),
      HasSubstr("in.weight is float32[4, 2] in the model and int64[4, 2] in the file"));
}

TEST_F(LoadWeights, ATiedWeightMayHaveAnyOfItsNames) {
  Net net(3, /*is_tied=*/true);
  std::vector<NamedTensor> tensors = all_of(Net(3));
  const fs::path with_first = written(tensors);
  load_weights(net, with_first);
  tensors.push_back({"again", at::full({4, 2}, 7.0)});
  EXPECT_THAT(
      message_of(ErrorCode::invalid_argument, [&] { load_weights(net, written(tensors)); }),
      HasSubstr("in.weight has other values than again"));
  tensors.pop_back();
  for (NamedTensor& tensor : tensors)
    if (tensor.name == "in.weight") tensor = {"again", at::full({4, 2}, 7.0)};
  load_weights(net, written(tensors));
  EXPECT_TRUE(net.in->weight.equal(at::full({4, 2}, 7.0)));
}

TEST_F(LoadWeights, ADeferredModelReadsOnlyTheTensorsThatGetMemory) {
  const Net saved;
  std::vector<checkpoint::TensorView> views;
  const std::vector<NamedTensor> tensors = all_of(saved);
  const auto specs = specs_of(tensors);
  for (size_t i = 0; i < tensors.size(); ++i)
    views.push_back({specs[i],
                     {static_cast<const std::byte*>(tensors[i].tensor.const_data_ptr()),
                      static_cast<size_t>(specs[i].bytes())}});
  const fs::path path = folder_ / "w.safetensors";
  checkpoint::write_safetensors(path, views);
  const WeightsFile file(path, {});
  fs::remove(path);  // A factory may run again at any time.
  std::shared_ptr<Net> net;
  DeferredModel deferred([&] {
    auto made = std::make_shared<Net>();
    EXPECT_EQ(file.write_to(*made).loaded.size(), tensors.size());
    if (!net) net = made;
    return made;
  });
  EXPECT_EQ(deferred.obstacle(), "");
  EXPECT_TRUE(is_hollow(net->in->weight));
  deferred.materialise({"in.weight"});
  EXPECT_TRUE(net->in->weight.equal(saved.in->weight));
  EXPECT_TRUE(is_hollow(net->out->weight));
  deferred.materialise({"out.weight"});
  EXPECT_TRUE(net->out->weight.equal(saved.out->weight));
}

TEST_F(LoadWeights, AFileThatDoesNotFitIsNoObstacleOfADeferredModel) {
  const WeightsFile file(written(all_of(Net(5))), {});
  const auto make = [&] {
    auto net = std::make_shared<Net>(3);
    file.write_to(*net);
    return net;
  };
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { DeferredModel{make}; }),
              HasSubstr("out.weight is float32[3, 4] in the model"));
}

}  // namespace
}  // namespace trireme::load_weights_test
