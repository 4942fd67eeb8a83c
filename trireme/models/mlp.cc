#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/linear.h>
#include <trireme/models/mlp.h>
#include <trireme/parallel/model.h>

namespace trireme::models {
namespace {

// Registers its layers under their numbers in the nn.Sequential; layers without
// parameters leave gaps.
class Mlp : public torch::nn::Module {
 public:
  Mlp(const ModelOptions& options, const InputSpec& input) : dropout_(options.dropout) {
    int64_t width = 1;
    for (const int64_t size : input.shape) width *= size;
    int64_t slot = 0;
    for (const int64_t hidden : options.hidden) {
      hidden_.push_back(register_module(std::to_string(slot), torch::nn::Linear(width, hidden)));
      width = hidden;
      slot += 2;
    }
    if (dropout_ > 0) ++slot;
    last_ = register_module(std::to_string(slot), torch::nn::Linear(width, input.classes));
  }

  at::Tensor forward(const at::Tensor& data) {
    at::Tensor x = data.flatten(1);
    for (auto& layer : hidden_) x = layer->forward(x).relu_();
    if (dropout_ > 0) x = torch::dropout(x, dropout_, is_training());
    return last_->forward(x);
  }

  std::vector<Block> blocks() const {
    std::vector<Block> blocks;
    for (size_t i = 0; i < hidden_.size(); ++i)
      blocks.push_back({"hidden" + std::to_string(i),
                        {hidden_[i].ptr()},
                        [layer = hidden_[i].ptr(), is_first = i == 0](const Tensors& inputs) {
                          const at::Tensor x = is_first ? inputs[0].flatten(1) : inputs[0];
                          return Tensors{layer->forward(x).relu_()};
                        }});
    blocks.push_back({"output",
                      {last_.ptr()},
                      [layer = last_.ptr(), is_first = hidden_.empty(),
                       dropout = dropout_](const Tensors& inputs) {
                        at::Tensor x = is_first ? inputs[0].flatten(1) : inputs[0];
                        if (dropout > 0) x = torch::dropout(x, dropout, layer->is_training());
                        return Tensors{layer->forward(x)};
                      }});
    return blocks;
  }

 private:
  double dropout_;
  std::vector<torch::nn::Linear> hidden_;
  torch::nn::Linear last_{nullptr};
};

}  // namespace

Model make_mlp(const ModelOptions& options, const InputSpec& input) {
  return model_factory<Mlp>(options, input)();
}

}  // namespace trireme::models
