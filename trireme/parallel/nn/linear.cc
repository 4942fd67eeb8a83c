#include <ATen/ops/empty.h>
#include <torch/nn/functional/linear.h>
#include <torch/nn/init.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/parallel/nn/divided_sizes.h>
#include <trireme/parallel/nn/linear.h>
#include <cmath>

namespace trireme::nn {
namespace {

// at::linear() adds the bias elsewhere, and rounds differently.
namespace F = torch::nn::functional;

// Gives a layer the whole parameters of torch::nn::Linear and their initial values, in its order
// of draws.
template <typename Layer, typename Options>
void start_linear(Layer& layer, const Options& options) {
  layer.weight = layer.register_parameter("weight", at::empty({options.out, options.in}));
  torch::nn::init::kaiming_uniform_(layer.weight, std::sqrt(5));
  if (!options.bias) {
    layer.bias = layer.register_parameter("bias", {}, /*requires_grad=*/false);
    return;
  }
  layer.bias = layer.register_parameter("bias", at::empty({options.out}));
  const double bound = 1 / std::sqrt(static_cast<double>(options.in));
  torch::nn::init::uniform_(layer.bias, -bound, bound);
}

// Rows [first, last) of each of the sections of a tensor of this shape.
ParameterParts rows_of_sections(const std::string& name, const std::vector<int64_t>& shape,
                                int64_t sections, std::pair<int64_t, int64_t> rows) {
  ParameterParts result{name, {}};
  const int64_t section = shape.front() / sections;
  for (int64_t i = 0; i < sections; ++i) {
    plan::TensorSlice box = plan::TensorSlice::whole(name, shape);
    box.from.front() = i * section + rows.first;
    box.sizes.front() = rows.second - rows.first;
    result.parts.push_back(std::move(box));
  }
  if (rows.second - rows.first == section) result.parts = {plan::TensorSlice::whole(name, shape)};
  return result;
}

}  // namespace

ColumnLinearImpl::ColumnLinearImpl(const ColumnLinearOptions& options) : options_(options) {
  require_positive("ColumnLinear's in", options.in);
  require_positive("ColumnLinear's out", options.out);
  require_positive("ColumnLinear's sections", options.sections);
  if (options.out % options.sections != 0 ||
      (options.heads != 0 && options.out / options.sections % options.heads != 0))
    throw Error(ErrorCode::invalid_argument, "parallel",
                fmt::format("ColumnLinear has {} columns for {} sections of {} heads", options.out,
                            options.sections, options.heads),
                "a multiple of sections x heads");
  if (options.gathers && options.sections > 1)
    throw Error(ErrorCode::invalid_argument, "parallel",
                "ColumnLinear gathers columns of one section only", "sections = 1");
  reset();
}

void ColumnLinearImpl::reset() { start_linear(*this, options_); }

at::Tensor ColumnLinearImpl::forward(const at::Tensor& x) {
  const at::Tensor input =
      options_.takes_tokens ? enter_columns_from_tokens(x, ranks()) : enter_columns(x, ranks());
  const at::Tensor columns = F::linear(input, weight, bias);
  return options_.gathers ? gather_columns(columns, options_.out, ranks()) : columns;
}

std::vector<ParameterParts> ColumnLinearImpl::parts(const std::string& layer, int rank,
                                                    int ranks) const {
  const int64_t section = options_.out / options_.sections;
  if (options_.heads > 0) require_even(layer, options_.heads, "heads", ranks, "model.heads");
  require_enough(layer, section, "columns", ranks);
  const auto rows = range_of(section, rank, ranks);
  std::vector<ParameterParts> result = {
      rows_of_sections("weight", {options_.out, options_.in}, options_.sections, rows)};
  if (options_.bias)
    result.push_back(rows_of_sections("bias", {options_.out}, options_.sections, rows));
  return result;
}

RowLinearImpl::RowLinearImpl(const RowLinearOptions& options) : options_(options) {
  require_positive("RowLinear's in", options.in);
  require_positive("RowLinear's out", options.out);
  reset();
}

void RowLinearImpl::reset() { start_linear(*this, options_); }

at::Tensor RowLinearImpl::forward(const at::Tensor& x) {
  if (!ranks()) return F::linear(x, weight, bias);
  // Each rank adds the whole bias to the sum, not to its term.
  const at::Tensor terms = F::linear(x, weight);
  const at::Tensor sum =
      options_.gives_tokens ? sum_terms_to_tokens(terms, ranks()) : sum_terms(terms, ranks());
  return bias.defined() ? sum + bias.to(sum.scalar_type()) : sum;
}

std::vector<ParameterParts> RowLinearImpl::parts(const std::string& layer, int rank,
                                                 int ranks) const {
  require_enough(layer, options_.in, "rows", ranks);
  const auto [first, last] = range_of(options_.in, rank, ranks);
  plan::TensorSlice columns = plan::TensorSlice::whole("weight", {options_.out, options_.in});
  columns.from[1] = first;
  columns.sizes[1] = last - first;
  std::vector<ParameterParts> result = {{"weight", {columns}}};
  if (options_.bias)
    result.push_back({"bias",
                      {plan::TensorSlice::whole("bias", {options_.out})},
                      /*sums_gradients=*/options_.gives_tokens && ranks > 1});
  return result;
}

}  // namespace trireme::nn
