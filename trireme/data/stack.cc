#include <trireme/data/stack.h>

#include <ATen/core/Tensor.h>
#include <ATen/ops/stack.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <algorithm>
#include <string>
#include <string_view>

namespace trireme {
namespace {

std::string shape_in_words(const at::Tensor& tensor) {
  return tensor.defined() ? fmt::format("[{}]", fmt::join(tensor.sizes(), ", ")) : "nothing";
}

// Stacks as at::stack does, but names a sample that does not fit the others.
at::Tensor stack(const std::vector<at::Tensor>& rows, const std::vector<int64_t>& indices,
                 std::string_view part) {
  for (size_t row = 0; row < rows.size(); ++row) {
    if (rows[row].defined() && rows[row].sizes() == rows[0].sizes()) continue;
    throw Error(
        ErrorCode::invalid_argument, "data",
        fmt::format("the {} of sample {} is {}, but that of sample {} of the same batch is {}; a "
                    "batch needs one shape",
                    part, indices[row], shape_in_words(rows[row]), indices[0],
                    shape_in_words(rows[0])),
        "cropping or padding in get(), or a get_batch() of the source's own");
  }
  return at::stack(rows);
}

template <typename Part>
std::vector<at::Tensor> parts_of(const std::vector<Example>& examples, Part part) {
  std::vector<at::Tensor> parts;
  for (const Example& example : examples) parts.push_back(part(example));
  return parts;
}

void require_same_names(const std::vector<Example>& examples,
                        const std::vector<int64_t>& indices) {
  const auto names_of = [](const Example& example) {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : example.more) names.push_back(name);
    return fmt::format("[{}]", fmt::join(names, ", "));
  };
  const auto same_name = [](const auto& a, const auto& b) { return a.first == b.first; };
  for (size_t row = 1; row < examples.size(); ++row)
    if (!std::ranges::equal(examples[row].more, examples[0].more, same_name))
      throw Error(
          ErrorCode::invalid_argument, "data",
          fmt::format("sample {} has more tensors {}, but sample {} of the same batch has "
                      "{}",
                      indices[row], names_of(examples[row]), indices[0], names_of(examples[0])),
          "the same names in every Example::more");
}

}  // namespace

Example stack_examples(const std::vector<Example>& examples, const std::vector<int64_t>& indices) {
  Example batch{
      stack(parts_of(examples, [](const Example& each) { return each.data; }), indices, "data"),
      stack(parts_of(examples, [](const Example& each) { return each.target; }), indices,
            "target")};
  require_same_names(examples, indices);
  for (const auto& [name, tensor] : examples[0].more)
    batch.more.emplace(
        name, stack(parts_of(examples, [&](const Example& each) { return each.more.at(name); }),
                    indices, name));
  return batch;
}

}  // namespace trireme
