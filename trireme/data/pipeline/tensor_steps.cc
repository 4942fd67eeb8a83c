// Stages on the tensors of a sample.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/data/pipeline/functions.h>
#include <trireme/data/pipeline/own_call.h>
#include <trireme/data/pipeline/program.h>
#include <trireme/images/rows.h>
#include <trireme/tensor/replica_random.h>
#include <algorithm>
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
  return [options = erase_options_of(stage), numbers = stage.numbers("value").size()](
             Sample& sample, uint64_t random) {
    at::Tensor& image = sample.example.data;
    if (image.dim() != 3)
      throw Error(
          ErrorCode::invalid_argument, "data",
          fmt::format("erase takes an image [channels, height, width], and the data has {} "
                      "dimensions",
                      image.dim()),
          "erase behind normalise");
    check_channels("erase", numbers, image.size(0));
    images::Random draws(random);
    auto erased = images::random_erase({image.size(1), image.size(2)}, options, draws);
    if (!erased) return true;
    // The tensor may have any type and layout of memory, so the box is written apart.
    const auto [top, left, height, width] = erased->box;
    const at::Tensor part = at::empty({image.size(0), height, width}, at::kFloat);
    erased->box = {0, 0, height, width};
    images::write_erased(*erased, image.size(0), {height, width}, part.mutable_data_ptr<float>());
    image.narrow(1, top, height).narrow(2, left, width).copy_(part);
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
  const std::vector<double>& values = stage.numbers("value");
  options.with_noise = values.empty();
  for (size_t i = 0; i < options.values.size() && !options.with_noise; ++i)
    options.values[i] = static_cast<float>(values[std::min(i, values.size() - 1)]);
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
