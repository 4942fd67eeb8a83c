#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <trireme/models/cnn.h>

namespace trireme::models {
namespace {

class Cnn : public torch::nn::Module {
 public:
  Cnn(const ModelOptions& options, const InputSpec& input) : dropout_(options.dropout) {
    features_ = register_module("features", torch::nn::Sequential());
    int64_t channels = input.shape[0];
    for (size_t i = 0; i < options.channels.size(); ++i) {
      add_block(channels, options.channels[i], options.strides[i], options.batch_norm == 1);
      channels = options.channels[i];
    }
    classifier_ = register_module("classifier", torch::nn::Linear(channels, input.classes));
  }

  at::Tensor forward(const at::Tensor& images) {
    at::Tensor x = features_->forward(images).mean({2, 3});
    if (dropout_ > 0) x = torch::dropout(x, dropout_, is_training());
    return classifier_->forward(x);
  }

 private:
  void add_block(int64_t inputs, int64_t outputs, int64_t stride, bool batch_norm) {
    features_->push_back(torch::nn::Conv2d(
        torch::nn::Conv2dOptions(inputs, outputs, 3).stride(stride).padding(1).bias(!batch_norm)));
    if (batch_norm) features_->push_back(torch::nn::BatchNorm2d(outputs));
    features_->push_back(torch::nn::ReLU(torch::nn::ReLUOptions().inplace(true)));
  }

  double dropout_;
  torch::nn::Sequential features_{nullptr};
  torch::nn::Linear classifier_{nullptr};
};

}  // namespace

Model make_cnn(const ModelOptions& options, const InputSpec& input) {
  return model_factory<Cnn>(options, input)();
}

}  // namespace trireme::models
