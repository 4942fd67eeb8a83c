#include <fmt/format.h>
#include <fmt/ranges.h>

#include <trireme/base/error.h>
#include <trireme/models/resnet_layout.h>
#include <trireme/models/shapes.h>
#include <algorithm>

namespace trireme::models {
namespace {

// Appends tensors with their state_dict names, in the order in which torch's modules register
// them: the weight, then the bias.
class ShapeList {
 public:
  explicit ShapeList(plan::DType dtype) : dtype_(dtype) {}

  void add(std::string name, std::vector<int64_t> shape) {
    specs_.push_back({std::move(name), std::move(shape), dtype_, true});
  }
  void add_linear(const std::string& name, int64_t inputs, int64_t outputs) {
    add(name + ".weight", {outputs, inputs});
    add(name + ".bias", {outputs});
  }
  void add_norm(const std::string& name, int64_t features) {
    add(name + ".weight", {features});
    add(name + ".bias", {features});
  }
  std::vector<plan::TensorSpec> take() { return std::move(specs_); }

 private:
  plan::DType dtype_;
  std::vector<plan::TensorSpec> specs_;
};

void add_mlp(ShapeList& list, const ModelOptions& options, const InputSpec& input) {
  int64_t width = 1;
  for (const int64_t size : input.shape) width *= size;
  // The position in the nn.Sequential: every hidden layer takes two, Linear and ReLU.
  int64_t slot = 0;
  for (const int64_t hidden : options.hidden) {
    list.add_linear(std::to_string(slot), width, hidden);
    width = hidden;
    slot += 2;
  }
  if (options.dropout > 0) ++slot;
  list.add_linear(std::to_string(slot), width, input.classes);
}

void add_cnn(ShapeList& list, const ModelOptions& options, const InputSpec& input) {
  int64_t channels = input.shape[0];
  int64_t slot = 0;
  for (const int64_t next : options.channels) {
    list.add(fmt::format("features.{}.weight", slot++), {next, channels, 3, 3});
    if (options.batch_norm == 1) {
      list.add_norm(fmt::format("features.{}", slot++), next);
    } else {
      list.add(fmt::format("features.{}.bias", slot - 1), {next});
    }
    ++slot;  // The ReLU.
    channels = next;
  }
  list.add_linear("classifier", channels, input.classes);
}

void add_resnet(ShapeList& list, const ModelOptions& options, const InputSpec& input) {
  const ResnetLayout layout = resnet_layout(options.name);
  const int64_t stem = has_small_stem(input) ? 3 : 7;
  const auto add_convolution = [&](const std::string& place, int number, int64_t inputs,
                                   int64_t outputs, int64_t side) {
    list.add(fmt::format("{}conv{}.weight", place, number), {outputs, inputs, side, side});
    list.add_norm(fmt::format("{}bn{}", place, number), outputs);
  };
  add_convolution("", 1, input.shape[0], layout.width(0), stem);
  int64_t channels = layout.width(0);
  for (int stage = 0; stage < ResnetLayout::kStages; ++stage) {
    const int64_t width = layout.width(stage), outputs = layout.outputs(stage);
    for (int64_t block = 0; block < layout.blocks[stage]; ++block) {
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
  list.add_linear("fc", channels, input.classes);
}

void add_gpt(ShapeList& list, const ModelOptions& options) {
  const int64_t width = options.width;
  list.add("token_embedding.weight", {options.vocabulary, width});
  list.add("position_embedding.weight", {options.context, width});
  for (int64_t layer = 0; layer < options.layers; ++layer) {
    const std::string block = fmt::format("blocks.{}.", layer);
    list.add_norm(block + "attention_norm", width);
    list.add_linear(block + "qkv", width, 3 * width);
    list.add_linear(block + "attention_out", width, width);
    list.add_norm(block + "mlp_norm", width);
    list.add_linear(block + "mlp_in", width, 4 * width);
    list.add_linear(block + "mlp_out", 4 * width, width);
  }
  list.add_norm("final_norm", width);
  list.add("head.weight", {options.vocabulary, width});
}

[[noreturn]] void refuse_input(const ModelOptions& options, const InputSpec& input,
                               const std::string& rule, const std::string& remedy) {
  throw Error(ErrorCode::invalid_argument, "models",
              fmt::format("samples of shape {} do not fit model.name {}: it takes {}", input.shape,
                          options.name, rule),
              remedy);
}

void check_tokens(const ModelOptions& options, const InputSpec& input) {
  if (input.shape.size() != 1)
    refuse_input(options, input, "a row of tokens",
                 "data.name=text, or model.name=cnn for images");
  if (input.shape[0] < 1 || input.shape[0] > options.context)
    refuse_input(options, input, fmt::format("1 to {} tokens", options.context),
                 fmt::format("model.context={}", input.shape[0]));
  if (input.classes > options.vocabulary)
    throw Error(ErrorCode::invalid_argument, "models",
                fmt::format("model.vocabulary is {}, but the data has {} different tokens",
                            options.vocabulary, input.classes),
                fmt::format("model.vocabulary={}", input.classes));
}

void check_input(const ModelOptions& options, const InputSpec& input) {
  const Family family = family_of(options);
  if (family == Family::registered)
    throw Error(ErrorCode::unsupported, "models",
                fmt::format("the shapes of model '{}' are not known: a programme registered it",
                            options.name),
                "the programme itself, which can make the model");
  if (family == Family::gpt) return check_tokens(options, input);
  const bool positive =
      std::all_of(input.shape.begin(), input.shape.end(), [](int64_t size) { return size > 0; });
  const bool images = family == Family::cnn || family == Family::resnet;
  if (images && (input.shape.size() != 3 || !positive))
    refuse_input(options, input, "[channels, height, width], each at least 1",
                 "model.name=mlp, which flattens its input");
  if (input.shape.empty() || !positive)
    refuse_input(options, input, "at least one feature", "check the data set");
  if (input.classes < 1)
    throw Error(ErrorCode::invalid_argument, "models",
                fmt::format("data.classes is {}, but must be at least 1", input.classes),
                "data.classes=10");
}

}  // namespace

std::vector<plan::TensorSpec> parameter_shapes(const ModelOptions& options, const InputSpec& input,
                                               plan::DType dtype) {
  const ModelOptions resolved = resolve(options);
  check_input(resolved, input);
  ShapeList list(dtype);
  switch (family_of(resolved)) {
    case Family::mlp: add_mlp(list, resolved, input); break;
    case Family::cnn: add_cnn(list, resolved, input); break;
    case Family::gpt: add_gpt(list, resolved); break;
    case Family::resnet: add_resnet(list, resolved, input); break;
    case Family::registered: break;  // check_input() has refused it.
  }
  return list.take();
}

}  // namespace trireme::models
