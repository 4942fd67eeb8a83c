#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/models/family.h>
#include <trireme/models/shapes.h>

namespace trireme::models {
namespace {

ShapeList shapes_of(const Family& family, const ModelOptions& resolved, const InputSpec& input,
                    plan::DType dtype) {
  ShapeList list(dtype);
  family.add_shapes(list, resolved, input);
  return list;
}

const OwnShapes& require_own_shapes(const ModelOptions& options) {
  const OwnShapes* const own = own_shapes_of(options);
  if (own && own->parameters) return *own;
  throw Error(ErrorCode::unsupported, "models",
              fmt::format("the shapes of model '{}' are not known: a programme registered it",
                          options.name),
              "the programme itself, which can make the model, or model.library");
}

}  // namespace

InputSpec default_input(const ModelOptions& options) {
  const ModelOptions resolved = resolve(options);
  const Family* family = family_of(resolved);
  if (family) return family->default_input(resolved);
  const OwnShapes* const own = own_shapes_of(resolved);
  return own ? own->input : OwnShapes().input;
}

int64_t default_batch(const ModelOptions& options) {
  const ModelOptions resolved = resolve(options);
  const Family* family = family_of(resolved);
  if (family) return family->default_batch(resolved);
  const OwnShapes* const own = own_shapes_of(resolved);
  return own ? own->batch : OwnShapes().batch;
}

bool has_shapes(const ModelOptions& options) {
  const OwnShapes* const own = own_shapes_of(options);
  return family_of(options) != nullptr || (own && own->parameters);
}

std::vector<plan::TensorSpec> parameter_shapes(const ModelOptions& options, const InputSpec& input,
                                               plan::DType dtype) {
  const ModelOptions resolved = resolve(options);
  if (const Family* const family = family_of(resolved))
    return shapes_of(*family, resolved, input, dtype).take();
  std::vector<plan::TensorSpec> specs = require_own_shapes(resolved).parameters(resolved, input);
  for (plan::TensorSpec& spec : specs) spec.dtype = dtype;
  return specs;
}

std::vector<BlockSize> block_sizes(const ModelOptions& options, const InputSpec& input) {
  const ModelOptions resolved = resolve(options);
  if (const Family* const family = family_of(resolved))
    return shapes_of(*family, resolved, input, plan::DType::float32).take_blocks();
  return require_own_shapes(resolved).blocks(resolved, input);
}

}  // namespace trireme::models
