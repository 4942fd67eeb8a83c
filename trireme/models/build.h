// The built-in models as torch modules: mlp, cnn, gpt, resnet and their presets.
#pragma once
#include <trireme/models/shapes.h>
#include <trireme/parallel/model.h>

namespace trireme::models {

// Makes a factory for the model that `options` names, for samples of `input`. Classifiers give
// logits [batch, classes]; gpt takes int64 tokens [batch, tokens] and gives logits [batch *
// tokens, vocabulary]. Throws as resolve() does, before any module is made.
ModelFactory make_factory(const ModelOptions& options, const InputSpec& input);

}  // namespace trireme::models
