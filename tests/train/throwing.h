// A model in blocks, one of which throws.
#pragma once
#include <torch/nn/modules/linear.h>

#include <fmt/format.h>
#include <trireme/parallel/model.h>
#include <stdexcept>
#include <string>
#include <vector>

namespace trireme::tests {

// Six blocks. Block `bad` throws in its forward number `call` of training, or in the backward of
// that: `place` is forward or backward.
struct Throwing : torch::nn::Module {
  Throwing(int bad_block, int bad_call, std::string bad_place)
      : bad(bad_block), call(bad_call), place(std::move(bad_place)) {
    for (int i = 0; i < 6; ++i)
      layers.push_back(register_module("layer" + std::to_string(i),
                                       torch::nn::Linear(i == 0 ? 5 : 7, i == 5 ? 3 : 7)));
  }
  at::Tensor forward(const at::Tensor& x) { return output_of(blocks(), {x}); }
  std::vector<Block> blocks() {
    std::vector<Block> blocks;
    for (int i = 0; i < 6; ++i)
      blocks.push_back(
          {"block" + std::to_string(i), {layers[i].ptr()}, [this, i](const Tensors& x) {
             const at::Tensor y = at::tanh(layers[i](x[0]));
             if (i == bad && is_training() && ++calls == call) fail(y);
             return Tensors{y};
           }});
    return blocks;
  }
  void fail(const at::Tensor& y) const {
    const std::string text = fmt::format("block{} gives up in {}", bad, place);
    if (place == "forward") throw std::runtime_error(text);
    y.register_hook([text](const at::Tensor&) -> at::Tensor { throw std::runtime_error(text); });
  }

  int bad, call, calls = 0;
  std::string place;
  std::vector<torch::nn::Linear> layers;
};

}  // namespace trireme::tests
