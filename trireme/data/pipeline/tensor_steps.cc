// Stages on the tensors of a sample.
#include <ATen/core/Tensor.h>

#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/data/pipeline/functions.h>
#include <trireme/data/pipeline/own_call.h>
#include <trireme/data/pipeline/program.h>
#include <trireme/images/regions.h>
#include <trireme/tensor/replica_random.h>
#include <string>
#include <utility>

namespace trireme::data {
namespace {

constexpr const char* kTakesSample = "a function that takes this sample";

TensorStep call_map(const std::string& stage, MapFunction function) {
  return [stage, function = std::move(function)](Sample& sample, uint64_t random) {
    const ReplicaRandom numbers(random);
    Draw draw = sample.draw;
    draw.seed = random;
    sample.example =
        call_own(stage, kTakesSample, [&] { return function(std::move(sample.example), draw); });
    return true;
  };
}

TensorStep call_filter(const std::string& stage, FilterFunction function) {
  return [stage, function = std::move(function)](Sample& sample, uint64_t) {
    return call_own(stage, kTakesSample, [&] { return function(sample.example); });
  };
}

TensorStep erase(const Stage& stage) {
  return [options = erase_options_of(stage)](Sample& sample, uint64_t random) {
    at::Tensor& image = sample.example.data;
    if (image.dim() != 3)
      throw Error(
          ErrorCode::invalid_argument, "data",
          fmt::format("erase takes an image [channels, height, width], and the data has {} "
                      "dimensions",
                      image.dim()),
          "erase behind normalise");
    images::Random numbers(random);
    const auto erased = images::random_erase({image.size(1), image.size(2)}, options, numbers);
    if (!erased) return true;
    const images::Crop& box = erased->box;
    image.slice(1, box.top, box.top + box.height)
        .slice(2, box.left, box.left + box.width)
        .fill_(erased->values[0]);
    return true;
  };
}

}  // namespace

images::EraseOptions erase_options_of(const Stage& stage) {
  images::EraseOptions options{.probability = stage.number("p"),
                               .scale_low = stage.numbers("scale")[0],
                               .scale_high = stage.numbers("scale")[1],
                               .ratio_low = stage.numbers("ratio")[0],
                               .ratio_high = stage.numbers("ratio")[1]};
  options.values.fill(static_cast<float>(stage.number("value")));
  return options;
}

TensorStep make_tensor_step(const Stage& stage) {
  const std::string_view name = stage.form->name;
  if (calls_function(stage)) {
    const std::string function = stage.word("function");
    const std::string as_written = name_with_function(stage);
    return name == "filter" ? call_filter(as_written, find_filter(function))
                            : call_map(as_written, find_map(function));
  }
  if (name == "erase") return erase(stage);
  throw Error(ErrorCode::internal, "data", fmt::format("nothing runs the stage {}", name));
}

}  // namespace trireme::data
