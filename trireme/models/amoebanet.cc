#include <torch/nn/init.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <trireme/models/amoebanet.h>
#include <trireme/models/amoebanet_layout.h>
#include <trireme/parallel/model.h>

namespace trireme::models {
namespace {

// A cell's tensors have other readers too, so no ReLU works in place.
class ConvolutionAndNorm : public torch::nn::Module {
 public:
  explicit ConvolutionAndNorm(const CellConvolution& shape, bool has_relu = true)
      : has_relu_(has_relu) {
    const auto [height, width] = shape.window;
    conv_ = register_module(
        "conv",
        torch::nn::Conv2d(torch::nn::Conv2dOptions(shape.inputs, shape.outputs, {height, width})
                              .stride({shape.stride[0], shape.stride[1]})
                              .padding({height / 2, width / 2})
                              .bias(false)));
    norm_ = register_module("norm", torch::nn::BatchNorm2d(shape.outputs));
  }

  at::Tensor forward(const at::Tensor& x) {
    return norm_->forward(conv_->forward(has_relu_ ? at::relu(x) : x));
  }

 private:
  bool has_relu_;
  torch::nn::Conv2d conv_{nullptr};
  torch::nn::BatchNorm2d norm_{nullptr};
};

// Halves an image without losing pixels: one convolution reads the pixels of even rows and
// columns, the other one those of odd rows and columns, with zeros behind the last.
class Halving : public torch::nn::Module {
 public:
  Halving(int64_t inputs, int64_t outputs) {
    const auto half = [&] {
      return torch::nn::Conv2d(
          torch::nn::Conv2dOptions(inputs, outputs / 2, 1).stride(2).bias(false));
    };
    conv1_ = register_module("conv1", half());
    conv2_ = register_module("conv2", half());
    norm_ = register_module("norm", torch::nn::BatchNorm2d(outputs));
  }

  at::Tensor forward(const at::Tensor& input) {
    const at::Tensor x = at::relu(input);
    const at::Tensor moved = at::constant_pad_nd(x, {0, 1, 0, 1}).slice(2, 1).slice(3, 1);
    return norm_->forward(at::cat({conv1_->forward(x), conv2_->forward(moved)}, 1));
  }

 private:
  torch::nn::Conv2d conv1_{nullptr}, conv2_{nullptr};
  torch::nn::BatchNorm2d norm_{nullptr};
};

class CellModule : public torch::nn::Module {
 public:
  explicit CellModule(const AmoebaCell& cell) : cell_(cell) {
    input_ = register_module(
        "input", std::make_shared<ConvolutionAndNorm>(CellConvolution{cell.inputs, cell.filters}));
    if (cell.skip_halves)
      halving_ =
          register_module("skip", std::make_shared<Halving>(cell.skip_inputs, cell.filters));
    else
      skip_ = register_module("skip", std::make_shared<ConvolutionAndNorm>(
                                          CellConvolution{cell.skip_inputs, cell.filters}));
    const auto list = register_module("operations", torch::nn::ModuleList());
    for (const CellStep& step : cell.recipe().steps) {
      torch::nn::ModuleList parts;  // Empty for a pooling: it has its number too.
      operations_.emplace_back();
      for (const auto& shape : convolutions_of(step.operation, cell.filters, cell.stride(step))) {
        operations_.back().push_back(std::make_shared<ConvolutionAndNorm>(shape));
        parts->push_back(operations_.back().back());
      }
      list->push_back(parts);
    }
  }

  // The outputs of the cell before, and of the one before that.
  at::Tensor forward(const at::Tensor& before, const at::Tensor& skipped) {
    Tensors tensors = {input_->forward(before),
                       halving_ ? halving_->forward(skipped) : skip_->forward(skipped)};
    for (size_t k = 0; k < operations_.size(); k += 2)
      tensors.push_back(run(k, tensors) + run(k + 1, tensors));
    Tensors given;
    for (const size_t output : cell_.recipe().outputs) given.push_back(tensors[output]);
    return at::cat(given, 1);
  }

 private:
  at::Tensor run(size_t k, const Tensors& tensors) {
    const CellStep& step = cell_.recipe().steps[k];
    const int64_t stride = cell_.stride(step);
    at::Tensor x = tensors[step.tensor];
    switch (step.operation) {
      case CellOperation::max_pool2x2:
        return at::max_pool2d(x, 2, stride, 0, 1, /*ceil_mode=*/true);
      case CellOperation::max_pool3x3: return at::max_pool2d(x, 3, stride, 1);
      case CellOperation::average_pool3x3:
        return at::avg_pool2d(x, 3, stride, 1, /*ceil_mode=*/false, /*count_include_pad=*/false);
      default:
        for (const auto& convolution : operations_[k]) x = convolution->forward(x);
        return x;
    }
  }

  AmoebaCell cell_;
  std::shared_ptr<ConvolutionAndNorm> input_, skip_;
  std::shared_ptr<Halving> halving_;  // In place of skip_.
  // The convolutions of each step.
  std::vector<std::vector<std::shared_ptr<ConvolutionAndNorm>>> operations_;
};

class Amoebanet : public torch::nn::Module {
 public:
  Amoebanet(const ModelOptions& options, const InputSpec& input) {
    const CellConvolution stem = {input.shape[0], amoebanet_stem(options.width), {3, 3}, {2, 2}};
    stem_ = register_module("stem", std::make_shared<ConvolutionAndNorm>(stem, false));
    const auto list = register_module("cells", torch::nn::ModuleList());
    const std::vector<AmoebaCell> cells = amoebanet_cells(options.layers, options.width);
    for (const AmoebaCell& cell : cells) {
      cells_.push_back(std::make_shared<CellModule>(cell));
      list->push_back(cells_.back());
    }
    head_ = register_module("head", torch::nn::Linear(cells.back().outputs(), input.classes));
    for (const auto& module : modules(/*include_self=*/false))
      if (auto* one = module->as<torch::nn::Conv2d>())
        torch::nn::init::kaiming_normal_(one->weight, 0, torch::kFanOut, torch::kReLU);
  }

  at::Tensor forward(const at::Tensor& images) {
    at::Tensor x = stem_->forward(images), skipped = x;
    for (auto& cell : cells_) skipped = std::exchange(x, cell->forward(x, skipped));
    return logits_of(*head_, x);
  }

  std::vector<Block> blocks() const {
    std::vector<Block> blocks;
    blocks.push_back({"stem", {stem_}, [stem = stem_](const Tensors& x) {
                        return Tensors{stem->forward(x[0])};
                      }});
    for (size_t i = 0; i < cells_.size(); ++i) {
      const bool is_last = i + 1 == cells_.size();  // Nothing after it takes what it skips.
      blocks.push_back({"cell" + std::to_string(i),
                        {cells_[i]},
                        // The first cell takes the one tensor of the stem twice.
                        [cell = cells_[i], is_last](const Tensors& x) {
                          const at::Tensor output = cell->forward(x.front(), x.back());
                          return is_last ? Tensors{output} : Tensors{output, x.front()};
                        }});
    }
    blocks.push_back({"head", {head_.ptr()}, [head = head_.ptr()](const Tensors& x) {
                        return Tensors{logits_of(*head, x[0])};
                      }});
    return blocks;
  }

 private:
  static at::Tensor logits_of(torch::nn::LinearImpl& head, const at::Tensor& x) {
    return head.forward(at::relu(x).mean({2, 3}));
  }

  std::shared_ptr<ConvolutionAndNorm> stem_;
  std::vector<std::shared_ptr<CellModule>> cells_;
  torch::nn::Linear head_{nullptr};
};

}  // namespace

Model make_amoebanet(const ModelOptions& options, const InputSpec& input) {
  return model_factory<Amoebanet>(options, input)();
}

}  // namespace trireme::models
