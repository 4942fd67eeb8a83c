#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <trireme/models/cnn.h>
#include <trireme/parallel/model.h>

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

  std::vector<Block> blocks() const {
    std::vector<Block> blocks;
    for (size_t i = 0; i < convolutions_.size(); ++i) {
      const auto convolution = convolutions_[i].ptr();
      const auto norm = i < norms_.size() ? norms_[i].ptr() : nullptr;
      std::vector<std::shared_ptr<torch::nn::Module>> modules = {convolution};
      if (norm) modules.push_back(norm);
      blocks.push_back({"features" + std::to_string(i), std::move(modules),
                        [convolution, norm](const Tensors& images) {
                          const at::Tensor x = convolution->forward(images[0]);
                          return Tensors{(norm ? norm->forward(x) : x).relu_()};
                        }});
    }
    blocks.push_back({"head",
                      {classifier_.ptr()},
                      [head = classifier_.ptr(), dropout = dropout_](const Tensors& features) {
                        at::Tensor x = features[0].mean({2, 3});
                        if (dropout > 0) x = torch::dropout(x, dropout, head->is_training());
                        return Tensors{head->forward(x)};
                      }});
    return blocks;
  }

 private:
  void add_block(int64_t inputs, int64_t outputs, int64_t stride, bool batch_norm) {
    convolutions_.emplace_back(
        torch::nn::Conv2dOptions(inputs, outputs, 3).stride(stride).padding(1).bias(!batch_norm));
    features_->push_back(convolutions_.back());
    if (batch_norm) features_->push_back(norms_.emplace_back(outputs));
    features_->push_back(torch::nn::ReLU(torch::nn::ReLUOptions().inplace(true)));
  }

  double dropout_;
  torch::nn::Sequential features_{nullptr};
  // The layers of features_.
  std::vector<torch::nn::Conv2d> convolutions_;
  std::vector<torch::nn::BatchNorm2d> norms_;
  torch::nn::Linear classifier_{nullptr};
};

}  // namespace

Model make_cnn(const ModelOptions& options, const InputSpec& input) {
  return model_factory<Cnn>(options, input)();
}

}  // namespace trireme::models
