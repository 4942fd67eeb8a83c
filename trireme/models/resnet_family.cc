#include <fmt/format.h>

#include <trireme/models/checks.h>
#include <trireme/models/resnet.h>
#include <trireme/models/resnet_layout.h>

namespace trireme::models {
namespace {

void resolve_resnet(ModelOptions& options) { options.zero_init = options.zero_init == 1 ? 1 : 0; }

void add_resnet(ShapeList& list, const ModelOptions& options, const InputSpec& input) {
  check_images(options, input);
  const ResnetLayout layout = resnet_layout(options.name);
  const int64_t stem = has_small_stem(input) ? 3 : 7;
  const auto add_convolution = [&](const std::string& place, int number, int64_t inputs,
                                   int64_t outputs, int64_t side) {
    list.add(fmt::format("{}conv{}.weight", place, number), {outputs, inputs, side, side});
    list.add_norm(fmt::format("{}bn{}", place, number), outputs);
  };
  list.begin_block("stem");
  add_convolution("", 1, input.shape[0], layout.width(0), stem);
  int64_t channels = layout.width(0);
  for (int stage = 0; stage < ResnetLayout::kStages; ++stage) {
    const int64_t width = layout.width(stage), outputs = layout.outputs(stage);
    for (int64_t block = 0; block < layout.blocks[stage]; ++block) {
      list.begin_block(fmt::format("layer{}_{}", stage + 1, block));
      const std::string place = fmt::format("layer{}.{}.", stage + 1, block);
      if (layout.bottleneck) {
        add_convolution(place, 1, channels, width, 1);
        add_convolution(place, 2, width, width, 3);
        add_convolution(place, 3, width, outputs, 1);
      } else {
        add_convolution(place, 1, channels, width, 3);
        add_convolution(place, 2, width, width, 3);
      }
      if (layout.has_projection(stage, block)) {
        list.add(place + "downsample.0.weight", {outputs, channels, 1, 1});
        list.add_norm(place + "downsample.1", outputs);
      }
      channels = outputs;
    }
  }
  list.begin_block("head");
  list.add_linear("fc", channels, input.classes);
}

}  // namespace

Family resnet_family() {
  return {.names = {"resnet18", "resnet34", "resnet50", "resnet101", "resnet152"},
          .keys = {"model.zero_init"},
          .resolve = resolve_resnet,
          .add_shapes = add_resnet,
          .default_input = [](const ModelOptions&) -> InputSpec { return {{3, 224, 224}, 1000}; },
          .default_batch = [](const ModelOptions&) -> int64_t { return 8; },
          .has_batch_norm = [](const ModelOptions&) { return true; }};
}

}  // namespace trireme::models
