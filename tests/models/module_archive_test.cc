// Archives of modules that LibTorch loads into the models of the command line.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/module.h>
#include <torch/serialize.h>

#include <trireme/checkpoint/pytorch_file.h>
#include <trireme/models/build.h>
#include <trireme/parallel/module_state.h>

#include "../checkpoint/checkpoint_testing.h"
#include "cases.h"

namespace trireme::models::module_archive_test {
namespace {

class ModuleArchive : public checkpoint::TemporaryFolder {
 protected:
  // Writes the archive as `trireme ckpt convert --archive` does.
  void write(const torch::nn::Module& module, const std::vector<std::string>& modules) const {
    ModuleState state = state_of(module);
    std::vector<NamedTensor> tensors = state.parameters;
    tensors.insert(tensors.end(), state.buffers.begin(), state.buffers.end());
    for (const auto& [name, first] : state.aliases)
      for (const NamedTensor& each : std::vector(tensors))
        if (each.name == first) tensors.push_back({name, each.tensor});
    const auto bytes_of = [&](size_t i) {
      const at::Tensor& tensor = tensors[i].tensor;
      return std::span(static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes());
    };
    checkpoint::write_module_archive(path_, specs_of(tensors), bytes_of, state.aliases, modules);
  }
  std::filesystem::path path_ = folder_ / "model.pt";
};

TEST_F(ModuleArchive, TorchLoadsIt) {
  const std::vector<std::pair<Case, std::vector<std::string>>> cases = {
      {{{.name = "mlp", .hidden = {6, 4}, .dropout = 0.5}, {{8}, 3}}, {}},
      // The last child of this list has no tensor, so nothing asks for its number.
      {{{.name = "cnn", .channels = {4, 8}}, {{3, 8, 8}, 10}}, {"features.5"}},
      {{{.name = "resnet18"}, {{1, 8, 8}, 10}}, {}},
      {{{.name = "gpt",
         .layers = 2,
         .width = 16,
         .heads = 2,
         .vocabulary = 9,
         .context = 4,
         .tied = 1},
        {{4}, 9}},
       {}},
  };
  for (const auto& [one, modules] : cases) {
    SCOPED_TRACE(one.options.name);
    torch::manual_seed(1);
    const Model saved = make_factory(one.options, one.input)();
    torch::manual_seed(2);
    Model loaded = make_factory(one.options, one.input)();
    const at::Tensor x = random_batch(one, 3);
    saved.module->eval();
    loaded.module->eval();
    EXPECT_FALSE(loaded.forward({x}).equal(saved.forward({x})));
    write(*saved.module, modules);
    torch::load(loaded.module, path_.string());
    EXPECT_TRUE(loaded.forward({x}).equal(saved.forward({x})));
  }
}

TEST_F(ModuleArchive, OrIsToldWhichModuleHasNoTensor) {
  const Model model =
      make_factory({.name = "cnn", .channels = {4, 8}}, InputSpec{{3, 8, 8}, 10})();
  write(*model.module, {});
  std::shared_ptr<torch::nn::Module> module = model.module;
  std::string error;
  try {
    torch::load(module, path_.string());
  } catch (const c10::Error& e) {
    error = e.what_without_backtrace();
  }
  EXPECT_THAT(error, testing::HasSubstr("'features.5'"));
}

}  // namespace
}  // namespace trireme::models::module_archive_test
