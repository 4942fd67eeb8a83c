// The parameters and blocks of every built-in model, computed without torch, for plans and for
// checks before a run.
#pragma once
#include <trireme/config/rows.h>
#include <trireme/data/dataset.h>
#include <trireme/plan/tensor_spec.h>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::models {

// The model keys of a configuration (model.*). Empty or negative values take the defaults of the
// named model.
struct ModelOptions {
  std::string name = "cnn";         // One of model_names().
  std::vector<int64_t> hidden;      // mlp: the widths of the hidden layers.
  std::vector<int64_t> channels;    // cnn: the output channels of each 3x3 convolution.
  std::vector<int64_t> strides;     // cnn: one stride per convolution.
  int batch_norm = -1;              // cnn: 1 for yes (convolutions then have no bias), 0 for no.
  double dropout = 0;               // mlp, cnn: the rate before the last layer.
  int zero_init = -1;               // resnet: at 1 every block starts as the identity.
  int64_t layers = -1, width = -1;  // gpt, amoebanet
  int64_t heads = -1, vocabulary = -1, context = -1;  // gpt
  int tied = -1;                     // gpt: at 1 the head has the weights of the token embedding.
  std::vector<int64_t> bottom, top;  // dlrm: the widths of the hidden layers of its two MLPs.
  int64_t rows = -1, embedding_dim = -1;  // dlrm: the size of each embedding table.
  // dlrm: its embedding tables live elsewhere, and are no parameters. No key.
  bool tables_elsewhere = false;
};
config::Rows rows_of(const ModelOptions*);
using data::InputSpec;  // The form of a sample.

struct BlockSize;

// Plans and benchmarks need this of a model that a programme registers (build.h). A process
// without torch has the name alone: its functions are then null.
struct OwnShapes {
  InputSpec input = {{784}, 10};  // The samples if no data says otherwise.
  int64_t batch = 32;             // The samples of a rank in a benchmark.
  std::function<std::vector<plan::TensorSpec>(const ModelOptions&, const InputSpec&)> parameters;
  std::function<std::vector<BlockSize>(const ModelOptions&, const InputSpec&)> blocks;
};

// The names of the models that come with Trireme, and of those that were added. Any thread.
std::vector<std::string> model_names();
void add_model(const std::string& name, OwnShapes shapes = {});
// Whether parameter_shapes() and block_sizes() know the model.
bool has_shapes(const ModelOptions& options);

// Fills in the defaults of the named model and checks the other values. Throws
// Error(invalid_argument) naming key, value, rule and the nearest known name.
ModelOptions resolve(const ModelOptions& options);
// The input of a model in the benchmark suite, if no data says otherwise: mlp 784, cnn 3x32x32,
// ...
InputSpec default_input(const ModelOptions& options);
int64_t default_batch(const ModelOptions& options);  // Samples per rank in the benchmark suite.
// The (trainable) parameters in the order of module->named_parameters(), with
// their state_dict names.
std::vector<plan::TensorSpec> parameter_shapes(const ModelOptions& options, const InputSpec& input,
                                               plan::DType dtype = plan::DType::float32);

// A block of a built-in model (Model::blocks), as far as its parameters go.
struct BlockSize {
  std::string name;
  int64_t elements = 0;                 // In all of its parameters.
  std::vector<std::string> parameters;  // Their names in the state_dict; a tied one is in several.
};
// The blocks of the model in the order in which they run, for plans that cut it. Throws as
// parameter_shapes() does. A registered model without blocks has one. Any thread.
std::vector<BlockSize> block_sizes(const ModelOptions& options, const InputSpec& input);

}  // namespace trireme::models
