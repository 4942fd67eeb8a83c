// AmoebaNet-D (L, D), the image model of the GPipe paper (amoebanet_layout.h has the sources).
//
// docs/models.md has the PyTorch module with the same state_dict. Every convolution stands between
// a ReLU and a batch norm: "conv" and "norm". The layers are
//   stem.conv, stem.norm (without the ReLU),
//   cells.N: input (1x1), skip (1x1; conv1 and conv2 where it halves the image),
//            operations.K.J: convolution J of step K; poolings leave gaps in K,
//   head.
// A cell takes the outputs of the two cells before it. So a block, except for the last two, gives
// two tensors to the next one: its own output, and that of the block before. The auxiliary head,
// drop path and dropout of the authors' training are not part of it.
#pragma once
#include <trireme/models/family.h>

namespace trireme::models {

Family amoebanet_family();  // No torch: amoebanet_family.cc.

// Builds the module. `options` must come from resolve(), and fit `input`. Images [batch, channels,
// height, width] of any size give logits [batch, classes]. Each of five places rounds half of
// height and width up. Convolutions start from a normal distribution of variance
// 2 / (outputs x window).
Model make_amoebanet(const ModelOptions& options, const InputSpec& input);

}  // namespace trireme::models
