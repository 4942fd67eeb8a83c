// The optimizer that a configuration names. No torch.
#pragma once
#include <trireme/config/rows.h>
#include <string>

namespace trireme {

struct OptimizerOptions {
  std::string name = "sgd";  // sgd, adam, adamw, rmsprop, adagrad, lars, lamb
  double lr = 0.01, momentum = 0, weight_decay = 0, beta1 = 0.9, beta2 = 0.999, eps = 1e-8,
         alpha = 0.99;
  double trust = 1e-3;  // lars
  bool nesterov = false;
};
config::Rows rows_of(const OptimizerOptions*);
// Throws Error(invalid_argument) that names the option.
void check(const OptimizerOptions& options);

// The tensors of state that the optimizer keeps for each trainable parameter
// (fused/fused_optimizer.h).
int state_tensors_of(const OptimizerOptions& options);
// True if the update depends on the norms of whole layers.
bool is_layerwise(const OptimizerOptions& options);

}  // namespace trireme
