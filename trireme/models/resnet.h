// Residual networks of 18 and 50 layers (He et al. 2016, "Deep residual learning for image
// recognition"), with the names of parameters that torchvision's resnet18 and resnet50 have. As
// there, a bottleneck's stride is in its 3x3 convolution.
#pragma once
#include <trireme/models/shapes.h>
#include <trireme/train/model.h>

namespace trireme::models {

// `options` as resolve() returns them, checked against `input`. Images [batch, channels, height,
// width] give logits [batch, classes]. Convolutions start from a normal distribution of variance 2
// / (outputs x window) (He et al. 2015), batch norms from 1 and 0; with zero_init the last one of
// each block starts from 0 (Goyal et al. 2017, section 5.1).
Model make_resnet(const ModelOptions& options, const InputSpec& input);

}  // namespace trireme::models
