// 3x3 convolutions, each with optional batch norm and ReLU, followed by a global average and one
// linear layer.
//
// The same module in PyTorch, with the same state_dict (docs/models.md):
//   features = []
//   for previous, width, stride in zip([in_channels] + channels[:-1], channels, strides):
//       features.append(nn.Conv2d(previous, width, 3, stride=stride, padding=1,
//                                 bias=not batch_norm))
//       if batch_norm: features.append(nn.BatchNorm2d(width))
//       features.append(nn.ReLU())
//   model = nn.Sequential(OrderedDict(features=nn.Sequential(*features),
//                                     pool=nn.AdaptiveAvgPool2d(1),
//                                     flatten=nn.Flatten(),
//                                     dropout=nn.Dropout(dropout),
//                                     classifier=nn.Linear(channels[-1], classes)))
// Parameters: "features.0.weight", ..., "classifier.weight", "classifier.bias".
#pragma once
#include <trireme/models/family.h>

namespace trireme::models {

Family cnn_family();  // No torch: cnn_family.cc.

// Builds the module. `options` must come from resolve(), and fit `input`. Images [batch, channels,
// height, width] give logits [batch, classes].
Model make_cnn(const ModelOptions& options, const InputSpec& input);

}  // namespace trireme::models
