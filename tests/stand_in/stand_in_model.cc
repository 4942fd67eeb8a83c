// A model for test_devices.py, in a shared object that brings the stand-in device along.
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <trireme/register.h>

namespace {

// A net for the digits with everything that may differ on a device: random numbers, buffers, a
// tensor that forward makes.
struct Noisy : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor features = norm(conv(x.view({-1, 1, 8, 8}))).relu().flatten(1);
    const at::Tensor noise = at::randn(features.sizes(), features.options());
    return out(dropout(is_training() ? features + 0.1 * noise : features));
  }
  torch::nn::Conv2d conv =
      register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 4, 3).padding(1)));
  torch::nn::BatchNorm2d norm = register_module("norm", torch::nn::BatchNorm2d(4));
  torch::nn::Dropout dropout = register_module("dropout", torch::nn::Dropout(0.2));
  torch::nn::Linear out = register_module("out", torch::nn::Linear(256, 10));
};

TRIREME_MODEL("noisy", trireme::model_factory<Noisy>(), {.input = {{1, 8, 8}, 10}});

}  // namespace
