// Optimizers for large batches whose step is scaled for each layer. torch::optim has none.
#pragma once
#include <torch/optim/optimizer.h>

namespace trireme {

// LARS: You, Gitman, Ginsburg 2017, "Large Batch Training of Convolutional Networks", algorithm 1.
// For a parameter w with gradient g: trust = eta |w| / (|g| + weight_decay |w|), v = momentum v +
// lr trust (g + weight_decay w), w -= v. As is the custom, parameters of one dimension (biases,
// norms) have trust 1 and no decay, unless `adapt_vectors`. Trust is 1 also if a norm is 0.
struct LarsOptions : public torch::optim::OptimizerCloneableOptions<LarsOptions> {
  LarsOptions(double lr = 0.1) : lr_(lr) {}  // NOLINT: as torch::optim's.
  TORCH_ARG(double, lr);
  TORCH_ARG(double, momentum) = 0.9;
  TORCH_ARG(double, weight_decay) = 0;
  TORCH_ARG(double, trust) = 0.001;
  TORCH_ARG(bool, adapt_vectors) = false;

 public:
  double get_lr() const override { return lr(); }
  void set_lr(const double lr) override { this->lr(lr); }
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;
};
struct LarsParamState : public torch::optim::OptimizerCloneableParamState<LarsParamState> {
  TORCH_ARG(at::Tensor, momentum_buffer);

 public:
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;
};
class LarsOptimizer : public torch::optim::Optimizer {
 public:
  LarsOptimizer(std::vector<at::Tensor> parameters, LarsOptions defaults);
  at::Tensor step(LossClosure closure = nullptr) override;
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;
};

// LAMB: You et al. 2020, "Large Batch Optimization for Deep Learning: Training BERT in 76
// minutes", algorithm 2, with Adam's bias correction: u = m' / (sqrt(v') + eps) + weight_decay w,
// w -= lr |w| / |u| u. The ratio is 1 for parameters of one dimension, unless `adapt_vectors`, and
// for a parameter or direction whose norm is 0.
struct LambOptions : public torch::optim::OptimizerCloneableOptions<LambOptions> {
  LambOptions(double lr = 1e-3) : lr_(lr) {}  // NOLINT: as torch::optim's.
  TORCH_ARG(double, lr);
  TORCH_ARG(double, beta1) = 0.9;
  TORCH_ARG(double, beta2) = 0.999;
  TORCH_ARG(double, eps) = 1e-6;
  TORCH_ARG(double, weight_decay) = 0;
  TORCH_ARG(bool, adapt_vectors) = false;

 public:
  double get_lr() const override { return lr(); }
  void set_lr(const double lr) override { this->lr(lr); }
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;
};
struct LambParamState : public torch::optim::OptimizerCloneableParamState<LambParamState> {
  TORCH_ARG(int64_t, step) = 0;
  TORCH_ARG(at::Tensor, exp_avg);
  TORCH_ARG(at::Tensor, exp_avg_sq);

 public:
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;
};
class LambOptimizer : public torch::optim::Optimizer {
 public:
  LambOptimizer(std::vector<at::Tensor> parameters, LambOptions defaults);
  at::Tensor step(LossClosure closure = nullptr) override;
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;
};

}  // namespace trireme
