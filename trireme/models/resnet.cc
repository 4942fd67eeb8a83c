#include <fmt/format.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <trireme/models/resnet.h>
#include <trireme/models/resnet_layout.h>
#include <trireme/parallel/model.h>

namespace trireme::models {
namespace {

torch::nn::Conv2d convolution(int64_t inputs, int64_t outputs, int64_t side, int64_t stride) {
  return torch::nn::Conv2d(torch::nn::Conv2dOptions(inputs, outputs, side)
                               .stride(stride)
                               .padding(side / 2)
                               .bias(false));
}

// The layers are conv1, bn1, conv2, bn2, ... A ReLU follows every pair but the last; after the
// last pair the input of the block is added.
class ResidualBlock : public torch::nn::Module {
 public:
  ResidualBlock(const ResnetLayout& layout, int stage, int64_t block, int64_t inputs,
                bool zero_init) {
    const int64_t width = layout.width(stage), outputs = layout.outputs(stage),
                  stride = layout.stride(stage, block);
    if (layout.bottleneck) {
      add(inputs, width, 1, 1);
      add(width, width, 3, stride);
      add(width, outputs, 1, 1);
    } else {
      add(inputs, width, 3, stride);
      add(width, outputs, 3, 1);
    }
    if (zero_init) torch::nn::init::zeros_(norms_.back()->weight);
    if (layout.has_projection(stage, block)) {
      projection_ = register_module("downsample",
                                    torch::nn::Sequential(convolution(inputs, outputs, 1, stride),
                                                          torch::nn::BatchNorm2d(outputs)));
    }
  }

  at::Tensor forward(const at::Tensor& input) {
    at::Tensor x = input;
    for (size_t i = 0; i < convolutions_.size(); ++i) {
      if (i > 0) x = x.relu_();
      x = norms_[i]->forward(convolutions_[i]->forward(x));
    }
    return (x + (projection_.is_empty() ? input : projection_->forward(input))).relu_();
  }

 private:
  void add(int64_t inputs, int64_t outputs, int64_t side, int64_t stride) {
    const std::string number = std::to_string(convolutions_.size() + 1);
    convolutions_.push_back(
        register_module("conv" + number, convolution(inputs, outputs, side, stride)));
    norms_.push_back(register_module("bn" + number, torch::nn::BatchNorm2d(outputs)));
  }

  std::vector<torch::nn::Conv2d> convolutions_;
  std::vector<torch::nn::BatchNorm2d> norms_;
  torch::nn::Sequential projection_{nullptr};
};

class Resnet : public torch::nn::Module {
 public:
  Resnet(const ModelOptions& options, const InputSpec& input)
      : small_stem_(has_small_stem(input)) {
    const ResnetLayout layout = resnet_layout(options.name);
    int64_t channels = layout.width(0);
    stem_ = register_module(
        "conv1", convolution(input.shape[0], channels, small_stem_ ? 3 : 7, small_stem_ ? 1 : 2));
    stem_norm_ = register_module("bn1", torch::nn::BatchNorm2d(channels));
    for (int stage = 0; stage < ResnetLayout::kStages; ++stage) {
      torch::nn::Sequential blocks;
      for (int64_t block = 0; block < layout.blocks[static_cast<size_t>(stage)]; ++block) {
        blocks->push_back(std::make_shared<ResidualBlock>(layout, stage, block, channels,
                                                          options.zero_init == 1));
        channels = layout.outputs(stage);
      }
      stages_.push_back(register_module("layer" + std::to_string(stage + 1), blocks));
    }
    classifier_ = register_module("fc", torch::nn::Linear(channels, input.classes));
    for (const auto& module : modules(/*include_self=*/false))
      if (auto* one = module->as<torch::nn::Conv2d>())
        torch::nn::init::kaiming_normal_(one->weight, 0, torch::kFanOut, torch::kReLU);
  }

  at::Tensor forward(const at::Tensor& images) {
    at::Tensor x = stem_norm_->forward(stem_->forward(images)).relu_();
    if (!small_stem_) x = torch::max_pool2d(x, 3, 2, 1);
    for (auto& stage : stages_) x = stage->forward(x);
    return classifier_->forward(x.mean({2, 3}));
  }

  std::vector<Block> blocks() const {
    std::vector<Block> blocks;
    blocks.push_back({"stem",
                      {stem_.ptr(), stem_norm_.ptr()},
                      [stem = stem_.ptr(), norm = stem_norm_.ptr(),
                       is_small = small_stem_](const Tensors& images) {
                        const at::Tensor x = norm->forward(stem->forward(images[0])).relu_();
                        return Tensors{is_small ? x : torch::max_pool2d(x, 3, 2, 1)};
                      }});
    for (size_t stage = 0; stage < stages_.size(); ++stage)
      for (size_t i = 0; i < stages_[stage]->size(); ++i) {
        const auto block = stages_[stage]->ptr<ResidualBlock>(i);
        blocks.push_back({fmt::format("layer{}_{}", stage + 1, i),
                          {block},
                          [block](const Tensors& x) { return Tensors{block->forward(x[0])}; }});
      }
    blocks.push_back({"head", {classifier_.ptr()}, [head = classifier_.ptr()](const Tensors& x) {
                        return Tensors{head->forward(x[0].mean({2, 3}))};
                      }});
    return blocks;
  }

 private:
  bool small_stem_;
  torch::nn::Conv2d stem_{nullptr};
  torch::nn::BatchNorm2d stem_norm_{nullptr};
  std::vector<torch::nn::Sequential> stages_;
  torch::nn::Linear classifier_{nullptr};
};

}  // namespace

Model make_resnet(const ModelOptions& options, const InputSpec& input) {
  return model_factory<Resnet>(options, input)();
}

}  // namespace trireme::models
