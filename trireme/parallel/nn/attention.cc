#include <ATen/core/Tensor.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include <trireme/parallel/nn/attention.h>
#include <trireme/parallel/nn/divided_sizes.h>
#include <optional>

namespace trireme::nn {

namespace {

at::Tensor attend_by(const at::Tensor& queries_keys_values, int64_t head_width,
                     const std::optional<at::Tensor>& mask, bool is_causal) {
  const int64_t batch = queries_keys_values.size(0), tokens = queries_keys_values.size(1),
                width = queries_keys_values.size(2) / 3;
  // [batch, tokens, 3 * width] -> three of [batch, heads, tokens, head_width].
  const at::Tensor qkv =
      queries_keys_values.view({batch, tokens, 3, width / head_width, head_width})
          .permute({2, 0, 3, 1, 4});
  const at::Tensor mixed = at::scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], mask,
                                                            /*dropout_p=*/0.0, is_causal);
  return mixed.transpose(1, 2).reshape({batch, tokens, width});
}

}  // namespace

at::Tensor attend(const at::Tensor& queries_keys_values, int64_t head_width, bool is_causal) {
  return attend_by(queries_keys_values, head_width, {}, is_causal);
}

at::Tensor attend_within(const at::Tensor& queries_keys_values, int64_t head_width,
                         const at::Tensor& documents) {
  // [batch, 1, tokens, tokens]: each token attends at least to itself.
  const at::Tensor mask = documents.unsqueeze(2).eq(documents.unsqueeze(1)).tril().unsqueeze(1);
  return attend_by(queries_keys_values, head_width, mask, /*is_causal=*/false);
}

SelfAttentionImpl::SelfAttentionImpl(const SelfAttentionOptions& options) : options_(options) {
  require_positive("SelfAttention's width", options.width);
  require_positive("SelfAttention's heads", options.heads);
  reset();
}

void SelfAttentionImpl::reset() {
  qkv = register_module(
      "qkv", ColumnLinear(ColumnLinearOptions{.in = options_.width,
                                              .out = 3 * options_.width,
                                              .sections = 3,
                                              .heads = options_.heads,
                                              .takes_tokens = options_.divides_tokens}));
  out = register_module(
      "out",
      RowLinear(RowLinearOptions{
          .in = options_.width, .out = options_.width, .gives_tokens = options_.divides_tokens}));
}

at::Tensor SelfAttentionImpl::forward(const at::Tensor& x) {
  return out(attend(qkv(x), options_.width / options_.heads, options_.is_causal));
}

}  // namespace trireme::nn
