// Linear layers whose weight the ranks of a tensor axis divide (Shoeybi et al. 2019, section 3): a
// column layer and then a row layer need one sum over the ranks for both.
//
//   nn::ColumnLinear in(C, 4 * C);   // each rank computes 4 C / ranks of the columns,
//   nn::RowLinear out(4 * C, C);     // takes them as its input, and the ranks add up their terms.
//   y = out(torch::gelu(in(x)));     // x and y are whole.
#pragma once
#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>
#include <trireme/parallel/nn/exchanges.h>
#include <trireme/parallel/nn/tensor_parallel_layer.h>

namespace trireme::nn {

struct ColumnLinearOptions {
  int64_t in = 0, out = 0;
  bool bias = true;
  // The columns are so many tensors side by side, each of which is divided: 3 for the queries,
  // keys and values of attention.
  int64_t sections = 1;
  // If not 0, each section consists of so many heads, and a rank gets whole heads, as many as
  // every other rank.
  int64_t heads = 0;
  bool takes_tokens = false;  // The input has divided tokens (exchanges.h) instead of being whole.
  bool gathers = false;       // The output is whole, instead of having divided columns.
};

// y = x W^T + b with the columns of y divided: each rank has rows of W and elements of b. Without
// `heads` the ranks' parts may differ by one column for each section.
class ColumnLinearImpl : public torch::nn::Cloneable<ColumnLinearImpl>,
                         public TensorParallelLayer {
 public:
  ColumnLinearImpl(int64_t in, int64_t out) : ColumnLinearImpl({.in = in, .out = out}) {}
  // Throws Error(invalid_argument) if the sizes do not fit together.
  explicit ColumnLinearImpl(const ColumnLinearOptions& options);

  // x [..., in] gives [..., out]: all of it alone or if it gathers, otherwise this rank's columns,
  // section by section.
  at::Tensor forward(const at::Tensor& x);
  void reset() override;
  std::vector<ParameterParts> parts(const std::string& layer, int rank, int ranks) const override;

  at::Tensor weight;  // [out, in]
  at::Tensor bias;    // [out], or undefined.

 private:
  ColumnLinearOptions options_;
};
TORCH_MODULE(ColumnLinear);

struct RowLinearOptions {
  int64_t in = 0, out = 0;
  bool bias = true;
  bool gives_tokens = false;  // The output has divided tokens instead of being whole.
};

// y = x W^T + b with the columns of x divided: each rank has columns of W. The bias is replicated.
class RowLinearImpl : public torch::nn::Cloneable<RowLinearImpl>, public TensorParallelLayer {
 public:
  RowLinearImpl(int64_t in, int64_t out) : RowLinearImpl({.in = in, .out = out}) {}
  explicit RowLinearImpl(const RowLinearOptions& options);

  // x [..., in], or this rank's columns of it, gives [..., out].
  at::Tensor forward(const at::Tensor& x);
  void reset() override;
  std::vector<ParameterParts> parts(const std::string& layer, int rank, int ranks) const override;

  at::Tensor weight;  // [out, in]
  at::Tensor bias;    // [out], or undefined.

 private:
  RowLinearOptions options_;
};
TORCH_MODULE(RowLinear);

}  // namespace trireme::nn
