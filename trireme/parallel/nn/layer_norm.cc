#include <ATen/ops/empty.h>
#include <ATen/ops/layer_norm.h>
#include <torch/nn/init.h>

#include <trireme/parallel/nn/divided_sizes.h>
#include <trireme/parallel/nn/layer_norm.h>

namespace trireme::nn {

SequenceLayerNormImpl::SequenceLayerNormImpl(int64_t width, double epsilon)
    : width_(width), epsilon_(epsilon) {
  require_positive("SequenceLayerNorm's width", width);
  reset();
}

void SequenceLayerNormImpl::reset() {
  weight = register_parameter("weight", at::empty({width_}));
  bias = register_parameter("bias", at::empty({width_}));
  torch::nn::init::ones_(weight);
  torch::nn::init::zeros_(bias);
}

at::Tensor SequenceLayerNormImpl::forward(const at::Tensor& x) {
  return at::layer_norm(x, {width_}, weight, bias, epsilon_);
}

std::vector<ParameterParts> SequenceLayerNormImpl::parts(const std::string&, int,
                                                         int ranks) const {
  return {{"weight", {plan::TensorSlice::whole("weight", {width_})}, ranks > 1},
          {"bias", {plan::TensorSlice::whole("bias", {width_})}, ranks > 1}};
}

}  // namespace trireme::nn
