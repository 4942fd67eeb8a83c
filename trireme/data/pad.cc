#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>

#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/data/pad.h>
#include <trireme/data/stack.h>
#include <algorithm>
#include <string>

namespace trireme {
namespace {

int64_t length_of_data(const Example& example, int64_t index) {
  if (example.data.defined() && example.data.dim() > 0) return example.data.size(0);
  throw Error(ErrorCode::invalid_argument, "data",
              fmt::format("pad: the data of sample {} has no dimension", index),
              "samples with a length");
}

void require_length_of_data(const Example& example, int64_t index) {
  const bool has_length = example.target.defined() && example.target.dim() > 0;
  if (has_length && example.target.size(0) == example.data.size(0)) return;
  throw Error(ErrorCode::invalid_argument, "data",
              fmt::format("pad: the data of sample {} has a length of {}, and its target {}",
                          index, example.data.size(0),
                          has_length ? fmt::format("{}", example.target.size(0)) : "none"),
              "a target for each of the data, or one target of a fixed shape");
}

at::Tensor longer(const at::Tensor& tensor, int64_t length, double value) {
  if (tensor.size(0) == length) return tensor;
  std::vector<int64_t> sizes = tensor.sizes().vec();
  sizes[0] = length;
  at::Tensor padded = at::full(sizes, value, tensor.options());
  padded.narrow(0, 0, tensor.size(0)).copy_(tensor);
  return padded;
}

}  // namespace

Example pad_examples(const std::vector<Example>& examples, const std::vector<int64_t>& indices,
                     const PadOptions& options, int64_t longest) {
  std::vector<int64_t> lengths;
  for (size_t i = 0; i < examples.size(); ++i) {
    lengths.push_back(length_of_data(examples[i], indices[i]));
    longest = std::max(longest, lengths[i]);
  }
  longest = (longest + options.multiple - 1) / options.multiple * options.multiple;
  // A tensor that has another first size than some sample's data is no row of as many things.
  const auto follows = [&](const std::string& name) {
    for (size_t i = 0; i < examples.size(); ++i) {
      const auto found = examples[i].more.find(name);
      if (found == examples[i].more.end() || found->second.dim() == 0 ||
          found->second.size(0) != lengths[i])
        return false;
    }
    return true;
  };
  std::vector<Example> padded = examples;
  for (Example& example : padded) {
    if (options.pads_target) {
      require_length_of_data(example, indices[static_cast<size_t>(&example - padded.data())]);
      const bool are_values = example.target.is_floating_point();
      example.target =
          longer(example.target, longest, are_values ? 0 : static_cast<double>(kNoTarget));
    }
    example.data = longer(example.data, longest, options.value);
  }
  for (const auto& [name, tensor] : examples[0].more)
    if (follows(name))
      for (Example& example : padded) example.more[name] = longer(example.more[name], longest, 0);
  Example batch = stack_examples(padded, indices);
  batch.more["lengths"] = at::tensor(lengths, at::kLong);
  return batch;
}

}  // namespace trireme
