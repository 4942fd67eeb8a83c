// A family of models that comes with Trireme, as far as plans and checks need it: names, keys and
// shapes. No torch. Each family describes itself in its own files (mlp.h, mlp_family.cc), and the
// table in families.cc has a row for it.
#pragma once
#include <trireme/models/shape_list.h>
#include <trireme/models/shapes.h>
#include <trireme/plan/table_plan.h>
#include <string_view>
#include <vector>

namespace trireme {
struct Model;  // parallel/model.h, which includes torch.
}

namespace trireme::models {

struct Family {
  std::vector<std::string_view> names;             // Values of model.name.
  std::vector<std::string_view> presets = {};      // More values; the sizes of these are fixed.
  std::vector<std::string_view> keys = {};         // The keys that a model of `names` takes.
  std::vector<std::string_view> preset_keys = {};  // The keys that a preset takes.
  // A sample is a row of tokens, as data.name text gives it. The data then completes the keys
  // model.vocabulary and model.context, which the family has.
  bool takes_tokens = false;
  // It has layers of trireme::nn, which the ranks of a tensor axis can divide.
  bool divides = false;

  // Fills in the defaults and checks the values of the family's keys. Throws
  // Error(invalid_argument). It changes nothing the second time.
  void (*resolve)(ModelOptions& options) = [](ModelOptions&) {};

  // The options of the functions below are resolved.
  // Appends the parameters. Throws Error(invalid_argument) if the input does not fit.
  void (*add_shapes)(ShapeList& list, const ModelOptions& options, const InputSpec& input);
  // The embedding tables, which servers may have instead; null: there are none. With `unbounded`
  // any int64 is a row.
  std::vector<plan::TableSpec> (*tables)(const ModelOptions& options, const InputSpec& input,
                                         bool unbounded) = nullptr;
  // Input and samples per rank in the benchmark suite.
  InputSpec (*default_input)(const ModelOptions& options);
  int64_t (*default_batch)(const ModelOptions& options);
  // Whether a layer keeps running statistics of the samples.
  bool (*has_batch_norm)(const ModelOptions& options) = [](const ModelOptions&) { return false; };
  // The proposal of a message to a user who cannot have batch norm.
  std::string_view without_batch_norm = "a model without batch norm";

  bool has_key(std::string_view key) const;
  bool has_preset(std::string_view name) const;
};

const std::vector<Family>& families();
// Null if a programme has registered the model (build.h). A preset belongs to its family.
const Family* family_of(const ModelOptions& options);
// The shapes of a model that a programme has registered; null for the others.
const OwnShapes* own_shapes_of(const ModelOptions& options);
// The names of the models that take this key, and those of the presets that do.
std::vector<std::string_view> names_with_key(std::string_view key);
std::vector<std::string_view> presets_with_key(std::string_view key);

}  // namespace trireme::models
