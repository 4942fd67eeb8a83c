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
// The samples of a benchmark or a plan, if no data says otherwise.
struct ModelDefaults {
  InputSpec input = {{784}, 10};
  int64_t batch = 32;  // The samples of a rank.
};
// Adds a name for model.name. Call it before the configuration is read, on every rank. Throws
// Error(invalid_argument) if the name is taken. TRIREME_MODEL (trireme/register.h) calls it.
void register_model(const std::string& name, ModelMaker maker, const ModelDefaults& = {});
// The same for a model that is made alike for any options and data.
void register_model(const std::string& name, ModelFactory factory, const ModelDefaults& = {});

}  // namespace trireme::models
