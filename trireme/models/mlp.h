// Fully connected layers with ReLU between them.
//
// The same module in PyTorch, with the same state_dict (docs/models.md):
//   layers = []
//   for width, hidden in zip([inputs] + widths[:-1], widths):
//       layers += [nn.Linear(width, hidden), nn.ReLU()]
//   if dropout > 0: layers.append(nn.Dropout(dropout))
//   model = nn.Sequential(*layers, nn.Linear(widths[-1], classes))
// Parameters: "0.weight", "0.bias", "2.weight", ... A sample of any shape is flattened first.
#pragma once
#include <trireme/models/family.h>

namespace trireme::models {

Family mlp_family();  // No torch: mlp_family.cc.

// Builds the module. `options` must come from resolve(), and fit `input`. Data [batch, ...] gives
// logits [batch, classes].
Model make_mlp(const ModelOptions& options, const InputSpec& input);

}  // namespace trireme::models
