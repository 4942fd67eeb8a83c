#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/linear.h>
#include <trireme/models/mlp.h>

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
