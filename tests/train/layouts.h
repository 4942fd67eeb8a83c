// Runs of the Trainer whose ranks have parts of a model, or of its state.
#pragma once
#include "jobs.h"

#include <fmt/format.h>

#include <trireme/parallel/nn/layer_norm.h>
#include <trireme/parallel/nn/linear.h>

namespace trireme::tests {

// Layers that a tensor axis divides, with norms and a bias whose gradients its ranks add up.
struct Divided : torch::nn::Module {
  static constexpr int64_t kTokens = 4, kWidth = 6;
  at::Tensor forward(const at::Tensor& x) { return output_of(blocks(), {x}); }
  std::vector<Block> blocks() {
    return {{"in",
             {in.ptr()},
             [this](const Tensors& x) { return Tensors{in(x[0]).view({-1, kTokens, kWidth})}; }},
            {"middle",
             {norm.ptr(), columns.ptr(), rows.ptr()},
             [this](const Tensors& x) {
               const at::Tensor tokens = nn::divide_tokens(x[0], norm->ranks());
               const at::Tensor inner = at::tanh(columns(norm(tokens)));
               return Tensors{nn::gather_tokens(tokens + rows(inner), norm->ranks())};
             }},
            {"out", {out.ptr()}, [this](const Tensors& x) {
               return Tensors{out(x[0].reshape({x[0].size(0), -1}))};
             }}};
  }
  torch::nn::Linear in = register_module("in", torch::nn::Linear(5, kTokens* kWidth));
  nn::SequenceLayerNorm norm = register_module("norm", nn::SequenceLayerNorm(kWidth));
  nn::ColumnLinear columns = register_module(
      "columns",
      nn::ColumnLinear(nn::ColumnLinearOptions{.in = kWidth, .out = 11, .takes_tokens = true}));
  nn::RowLinear rows = register_module(
      "rows", nn::RowLinear(nn::RowLinearOptions{.in = 11, .out = kWidth, .gives_tokens = true}));
  torch::nn::Linear out = register_module("out", torch::nn::Linear(kTokens* kWidth, 3));
};

struct Layout {
  int ranks = 1, level = 0, stages = 1, tensor = 1;
  std::string schedule = "1f1b";
  std::string describe() const {
    return fmt::format("{} ranks, level {}, {} stages, {}, tensor axis {}", ranks, level, stages,
                       schedule, tensor);
  }
};
inline TrainerOptions options_of(const Layout& layout) {
  TrainerOptions options = tests::options(layout.ranks);
  if (layout.level == 0 && layout.stages == 1 && layout.tensor == 1) return options;
  options.strategy = layout.stages > 1 ? "pipeline" : layout.tensor > 1 ? "tensor" : "sharded";
  options.division.mesh.pipeline = layout.stages;
  options.division.mesh.tensor = layout.tensor;
  options.division.pipeline.schedule = layout.schedule;
  options.division.shard.level = layout.level;
  options.share_parameters = false;
  return options;
}

}  // namespace trireme::tests
