// The built-in models as torch modules: mlp, cnn, gpt, resnet and their presets.
#pragma once
#include <trireme/models/shapes.h>
#include <trireme/train/model.h>

namespace trireme::models {

// A factory for the model that `options` name, for inputs of `input`. Classifiers give logits
// [batch, classes]; gpt takes int64 tokens [batch, tokens] and gives logits [batch * tokens,
// vocabulary]. Throws as resolve() does, at once.
ModelFactory make_factory(const ModelOptions& options, const InputSpec& input);

}  // namespace trireme::models
