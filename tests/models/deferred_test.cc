#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <trireme/models/build.h>
#include <trireme/parallel/module_state.h>
#include <trireme/tensor/deferred_model.h>
#include <trireme/tensor/hollow.h>
#include <trireme/tensor/replica_random.h>
#include <map>

#include "cases.h"

namespace trireme::models::deferred_test {
namespace {

std::vector<Case> cases() {
  return {
      {{.name = "mlp", .hidden = {300, 16}, .dropout = 0.5}, {{1, 8, 8}, 10}},
      {{.name = "cnn", .channels = {8, 16}}, {{3, 8, 8}, 10}},
      {{.name = "resnet18"}, {{1, 8, 8}, 10}},
      {{.name = "gpt", .layers = 3, .width = 32, .heads = 4, .vocabulary = 50, .context = 12},
       {{12}, 50}},
  };
}

Model made_for_training(const Case& c, at::ScalarType dtype) {
  Model model = make_factory(c.options, c.input)();
  prepare_for_training(*model.module, dtype);
  return model;
}

std::map<std::string, at::Tensor> tensors_of(const torch::nn::Module& module) {
  const ModuleState state = state_of(module);
  std::map<std::string, at::Tensor> tensors;
  for (const auto* const all : {&state.parameters, &state.buffers})
    for (const auto& [name, tensor] : *all) tensors.emplace(name, tensor);
  return tensors;
}

// The names of a block's tensors in the whole module.
std::set<std::string> names_in(const Block& block, const torch::nn::Module& module) {
  std::set<const void*> own;
  for (const auto& part : block.modules)
    for (const auto& [name, tensor] : tensors_of(*part)) own.insert(tensor.unsafeGetTensorImpl());
  std::set<std::string> names;
  for (const auto& [name, tensor] : tensors_of(module))
    if (own.contains(tensor.unsafeGetTensorImpl())) names.insert(name);
  return names;
}

// A stage of a pipeline owns one block here, of a model that is also converted before training.
TEST(DeferredModels, EachBlockAloneHasTheValuesOfTheWholeModel) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16})
    for (const Case& c : cases()) {
      if (c.options.name == "resnet18" && dtype != at::kFloat) continue;  // 11 million elements.
      std::map<std::string, at::Tensor> expected;
      ReplicaRandom random(7);
      const size_t blocks = [&] {
        const Model model = made_for_training(c, dtype);
        expected = tensors_of(*model.module);
        return model.blocks.size();
      }();
      const at::Tensor after = random.mark();
      for (const size_t own : {size_t{0}, blocks / 2, blocks - 1}) {
        random.reseed(7);
        Model model;
        DeferredModel deferred([&] {
          Model made = made_for_training(c, dtype);
          if (!model.module) model = made;
          return made.module;
        });
        EXPECT_EQ(deferred.obstacle(), "") << c.options.name;
        const std::set<std::string> names = names_in(model.blocks[own], *model.module);
        deferred.materialise(names);
        EXPECT_TRUE(at::equal(random.mark(), after)) << c.options.name;
        for (const auto& [name, tensor] : tensors_of(*model.module)) {
          EXPECT_EQ(is_hollow(tensor), !names.contains(name)) << c.options.name << " " << name;
          if (names.contains(name)) {
            EXPECT_TRUE(at::equal(tensor, expected.at(name))) << c.options.name << " " << name;
          }
        }
      }
    }
}

TEST(DeferredModels, ABlockComputesWithItsOwnTensorsAlone) {
  for (const Case& c : cases()) {
    if (c.options.name == "gpt") continue;
    ReplicaRandom random(7);
    const Model whole = made_for_training(c, at::kFloat);
    random.reseed(7);
    Model model;
    DeferredModel deferred([&] {
      Model made = made_for_training(c, at::kFloat);
      if (!model.module) model = made;
      return made.module;
    });
    deferred.materialise(names_in(model.blocks[0], *model.module));
    std::vector<int64_t> shape = c.input.shape;
    shape.insert(shape.begin(), 3);
    const at::Tensor data = at::ones(shape);
    const at::Tensor result = model.blocks[0].forward({data})[0];
    EXPECT_TRUE(at::equal(result, whole.blocks[0].forward({data})[0])) << c.options.name;
    EXPECT_ANY_THROW(model.forward(data)) << "the other blocks have no values";
  }
}

}  // namespace
}  // namespace trireme::models::deferred_test
