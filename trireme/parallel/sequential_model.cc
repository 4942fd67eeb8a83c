#include <ATen/core/Tensor.h>
#include <c10/util/Type.h>
#include <torch/nn/modules/container/sequential.h>

#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/parallel/model.h>
#include <tuple>

namespace trireme {
namespace {

using torch::nn::AnyModule;
using torch::nn::AnyValue;

[[noreturn]] void refuse_sequential(const std::string& what, const std::string& remedy) {
  throw Error(ErrorCode::invalid_argument, "train", what, remedy);
}

// Calls run(x[0]), run(x[0], x[1]) or run(x[0], x[1], x[2]).
template <typename Run>
auto spread(const std::string& name, const Tensors& x, Run run) {
  switch (x.size()) {
    case 1: return run(x[0]);
    case 2: return run(x[0], x[1]);
    case 3: return run(x[0], x[1], x[2]);
    default:
      refuse_sequential(fmt::format("{} gets {} tensors", name, x.size()), "one to three tensors");
  }
}

template <typename... T>
bool take_tuple(AnyValue& value, Tensors& tensors) {
  const auto* tuple = value.try_get<std::tuple<T...>>();
  if (!tuple) return false;
  std::apply([&](const T&... each) { tensors = {each...}; }, *tuple);
  return true;
}

Tensors tensors_in(const std::string& name, AnyValue value) {
  using at::Tensor;
  if (const auto* tensor = value.try_get<Tensor>()) return {*tensor};
  Tensors tensors;
  if (take_tuple<Tensor, Tensor>(value, tensors)) return tensors;
  if (take_tuple<Tensor, Tensor, Tensor>(value, tensors)) return tensors;
  refuse_sequential(fmt::format("{} gives {}, but a block gives one tensor, or a tuple of two or "
                                "three",
                                name, c10::demangle(value.type_info().name())),
                    "a module of your own around it that gives tensors");
}

Block block_of(const std::string& key, const AnyModule& child, bool is_first) {
  const std::string name = fmt::format("the child '{}' of a Sequential", key);
  return {key, {child.ptr()}, [name, child, is_first](const Tensors& inputs) {
            AnyModule run = child;  // The same module: copies of an AnyModule share it.
            return tensors_in(name, spread(name, inputs, [&](const auto&... x) {
                                if (is_first || sizeof...(x) == 1) return run.any_forward(x...);
                                return run.any_forward(std::tuple(x...));
                              }));
          }};
}

}  // namespace

Model model_of(const std::shared_ptr<torch::nn::SequentialImpl>& net) {
  if (!net || net->is_empty())
    refuse_sequential("the model is a Sequential without children", "at least one module in it");
  Model model{net, [net](const Tensors& inputs) {
                return spread("a Sequential", inputs,
                              [&](const auto&... x) { return net->forward(x...); });
              }};
  const auto names = net->named_children().keys();
  for (size_t i = 0; i < net->size(); ++i)
    model.blocks.push_back(
        block_of(names[i], *(net->begin() + static_cast<ptrdiff_t>(i)), i == 0));
  return model;
}

}  // namespace trireme
