#include <fmt/format.h>

#include <trireme/models/amoebanet.h>
#include <trireme/models/amoebanet_layout.h>
#include <trireme/models/checks.h>

namespace trireme::models {
namespace {

void require_multiple(std::string_view key, int64_t& value, int64_t usual, int64_t unit,
                      std::string_view reason) {
  if (value < 0) value = usual;
  require_positive(key, value);
  if (value % unit != 0)
    refuse(fmt::format("{} is {}, but amoebanet takes a multiple of {}: {}", key, value, unit,
                       reason),
           fmt::format("{}={}", key, (value / unit + 1) * unit));
}

void resolve_amoebanet(ModelOptions& options) {
  require_multiple("model.layers", options.layers, 18, 3,
                   "each of its three parts has as many normal cells");
  require_multiple("model.width", options.width, 256, 8,
                   "its first cell has convolutions with an eighth of the filters");
}

void add_conv_and_norm(ShapeList& list, const std::string& place,
                       const CellConvolution& convolution) {
  const auto [height, width] = convolution.window;
  list.add(place + ".conv.weight", {convolution.outputs, convolution.inputs, height, width});
  list.add_norm(place + ".norm", convolution.outputs);
}

void add_cell(ShapeList& list, const std::string& place, const AmoebaCell& cell) {
  add_conv_and_norm(list, place + ".input", {cell.inputs, cell.filters});
  if (cell.skip_halves) {
    for (const char* half : {".skip.conv1.weight", ".skip.conv2.weight"})
      list.add(place + half, {cell.filters / 2, cell.skip_inputs, 1, 1});
    list.add_norm(place + ".skip.norm", cell.filters);
  } else {
    add_conv_and_norm(list, place + ".skip", {cell.skip_inputs, cell.filters});
  }
  for (size_t k = 0; k < cell.recipe().steps.size(); ++k) {
    const CellStep& step = cell.recipe().steps[k];
    const auto convolutions = convolutions_of(step.operation, cell.filters, cell.stride(step));
    for (size_t j = 0; j < convolutions.size(); ++j)
      add_conv_and_norm(list, fmt::format("{}.operations.{}.{}", place, k, j), convolutions[j]);
  }
}

void add_amoebanet(ShapeList& list, const ModelOptions& options, const InputSpec& input) {
  check_images(options, input);
  list.begin_block("stem");
  add_conv_and_norm(list, "stem", {input.shape[0], amoebanet_stem(options.width), {3, 3}});
  const std::vector<AmoebaCell> cells = amoebanet_cells(options.layers, options.width);
  for (size_t i = 0; i < cells.size(); ++i) {
    list.begin_block(fmt::format("cell{}", i));
    add_cell(list, fmt::format("cells.{}", i), cells[i]);
  }
  list.begin_block("head");
  list.add_linear("head", cells.back().outputs(), input.classes);
}

}  // namespace

Family amoebanet_family() {
  return {.names = {"amoebanet"},
          .keys = {"model.layers", "model.width"},
          .resolve = resolve_amoebanet,
          .add_shapes = add_amoebanet,
          .default_input = [](const ModelOptions&) -> InputSpec { return {{3, 224, 224}, 1000}; },
          .default_batch = [](const ModelOptions&) -> int64_t { return 8; },
          .has_batch_norm = [](const ModelOptions&) { return true; }};
}

}  // namespace trireme::models
