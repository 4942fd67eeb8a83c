// The built-in models (families.cc) as torch modules, and models that a programme registers.
#pragma once
#include <trireme/models/shapes.h>
#include <trireme/parallel/model.h>
#include <functional>
#include <memory>
#include <string>

namespace trireme {
class RowSource;
}

namespace trireme::models {

// Makes a factory for the model that `options` names, for samples of `input`. Classifiers give
// logits [batch, classes]; gpt takes int64 tokens [batch, tokens] and gives logits [batch *
// tokens, vocabulary]. Throws as resolve() does, before any module is made.
ModelFactory make_factory(const ModelOptions& options, const InputSpec& input);

// The same with the tables of Family::tables, which live elsewhere. Throws
// Error(invalid_argument) if the model has none.
ModelFactory make_factory(const ModelOptions& options, const InputSpec& input,
                          const std::shared_ptr<RowSource>& tables);

// Makes the factory of a model that a programme has registered.
using ModelMaker = std::function<ModelFactory(const ModelOptions&, const InputSpec&)>;
// Adds a name for model.name. Call it before the configuration is read, on every rank. Throws
// Error(invalid_argument) if the name is taken.
void register_model(const std::string& name, ModelMaker maker);

}  // namespace trireme::models
