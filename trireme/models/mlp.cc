#include <trireme/models/mlp.h>
#include <trireme/parallel/model.h>
#include <trireme/parallel/nn/divided_random.h>
#include <trireme/parallel/nn/linear.h>

namespace trireme::models {
namespace {

// Along a tensor axis, layers that divide their columns and layers that divide their rows
// alternate, so that two layers need one sum over the ranks. One of the two is empty.
struct MlpLayer {
  nn::ColumnLinear columns{nullptr};
  nn::RowLinear rows{nullptr};

  at::Tensor forward(const at::Tensor& x) const {
    return rows.is_empty() ? columns.ptr()->forward(x) : rows.ptr()->forward(x);
  }
  // Dropout of the layer's input, of which a rank may have a part.
  at::Tensor without_some(const at::Tensor& x, double rate) const {
    const nn::DividedRandom apart(rows.is_empty() ? nullptr : rows->ranks());
    return torch::dropout(x, rate, module()->is_training());
  }
  std::shared_ptr<torch::nn::Module> module() const {
    if (rows.is_empty()) return columns.ptr();
    return rows.ptr();
  }
};

// Registers its layers under their numbers in the nn.Sequential; layers without
// parameters leave gaps.
class Mlp : public torch::nn::Module {
 public:
  Mlp(const ModelOptions& options, const InputSpec& input) : dropout_(options.dropout) {
    int64_t width = 1;
    for (const int64_t size : input.shape) width *= size;
    int64_t slot = 0;
    for (const int64_t hidden : options.hidden) {
      add(slot, width, hidden);
      width = hidden;
      slot += 2;
    }
    if (dropout_ > 0) ++slot;
    add(slot, width, input.classes, /*is_last=*/true);
  }

  at::Tensor forward(const at::Tensor& data) {
    at::Tensor x = data.flatten(1);
    for (size_t i = 0; i + 1 < layers_.size(); ++i) x = layers_[i].forward(x).relu_();
    return output_of_last(layers_.back(), dropout_, x);
  }

  std::vector<Block> blocks() const {
    std::vector<Block> blocks;
    for (size_t i = 0; i + 1 < layers_.size(); ++i)
      blocks.push_back({"hidden" + std::to_string(i),
                        {layers_[i].module()},
                        [layer = layers_[i], is_first = i == 0](const Tensors& inputs) {
                          const at::Tensor x = is_first ? inputs[0].flatten(1) : inputs[0];
                          return Tensors{layer.forward(x).relu_()};
                        }});
    blocks.push_back({"output",
                      {layers_.back().module()},
                      [layer = layers_.back(), is_first = layers_.size() == 1,
                       dropout = dropout_](const Tensors& inputs) {
                        const at::Tensor x = is_first ? inputs[0].flatten(1) : inputs[0];
                        return Tensors{output_of_last(layer, dropout, x)};
                      }});
    return blocks;
  }

 private:
  static at::Tensor output_of_last(const MlpLayer& layer, double dropout, const at::Tensor& x) {
    return layer.forward(dropout > 0 ? layer.without_some(x, dropout) : x);
  }

  void add(int64_t slot, int64_t in, int64_t out, bool is_last = false) {
    MlpLayer layer;
    if (layers_.size() % 2 == 0)
      layer.columns =
          nn::ColumnLinear(nn::ColumnLinearOptions{.in = in, .out = out, .gathers = is_last});
    else
      layer.rows = nn::RowLinear(in, out);
    register_module(std::to_string(slot), layer.module());
    layers_.push_back(std::move(layer));
  }

  double dropout_;
  std::vector<MlpLayer> layers_;
};

}  // namespace

Model make_mlp(const ModelOptions& options, const InputSpec& input) {
  return model_factory<Mlp>(options, input)();
}

}  // namespace trireme::models
