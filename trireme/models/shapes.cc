#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/models/family.h>
#include <trireme/models/shapes.h>

namespace trireme::models {
namespace {

ShapeList shapes_of(const ModelOptions& options, const InputSpec& input, plan::DType dtype) {
  const ModelOptions resolved = resolve(options);
  const Family* family = family_of(resolved);
  if (!family)
    throw Error(ErrorCode::unsupported, "models",
                fmt::format("the shapes of model '{}' are not known: a programme registered it",
                            options.name),
                "the programme itself, which can make the model");
  ShapeList list(dtype);
  family->add_shapes(list, resolved, input);
  return list;
}

}  // namespace

InputSpec default_input(const ModelOptions& options) {
  const ModelOptions resolved = resolve(options);
  const Family* family = family_of(resolved);
  return family ? family->default_input(resolved) : InputSpec{{784}, 10};
}

int64_t default_batch(const ModelOptions& options) {
  const ModelOptions resolved = resolve(options);
  const Family* family = family_of(resolved);
  return family ? family->default_batch(resolved) : 32;
}

std::vector<plan::TensorSpec> parameter_shapes(const ModelOptions& options, const InputSpec& input,
                                               plan::DType dtype) {
  return shapes_of(options, input, dtype).take();
}

std::vector<BlockSize> block_sizes(const ModelOptions& options, const InputSpec& input) {
  return shapes_of(options, input, plan::DType::float32).take_blocks();
}

}  // namespace trireme::models
