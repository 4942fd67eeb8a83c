// Residual networks of 18, 34, 50, 101 and 152 layers (He et al. 2016, "Deep residual learning for
// image recognition"). The parameters have the names of torchvision's models. As there, the 3x3
// convolution of a bottleneck has the stride.
#pragma once
#include <trireme/models/family.h>

namespace trireme::models {

Family resnet_family();  // No torch: resnet_family.cc.

// Builds the module. `options` must come from resolve(), and fit `input`. Images [batch, channels,
// height, width] give logits [batch, classes]. Convolutions start from a normal distribution of
// variance 2 / (outputs x window) (He et al. 2015), batch norms from 1 and 0. With zero_init the
// last batch norm of each block starts from 0 (Goyal et al. 2017, section 5.1).
Model make_resnet(const ModelOptions& options, const InputSpec& input);

}  // namespace trireme::models
