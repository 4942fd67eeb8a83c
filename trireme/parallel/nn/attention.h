// Self-attention whose heads the ranks of a tensor axis divide (Shoeybi et al. 2019, section 3).
#pragma once
#include <trireme/parallel/nn/linear.h>

namespace trireme::nn {

// The mixed values [batch, tokens, n] of [batch, tokens, 3 n]: queries, keys and values, each with
// n / head_width heads. That is the output of a ColumnLinear with 3 sections, whole or divided.
at::Tensor attend(const at::Tensor& queries_keys_values, int64_t head_width, bool is_causal);
// The same, causal, where a token attends to those of its own document alone. `documents`, whole
// numbers [batch, tokens], has the document of each token.
at::Tensor attend_within(const at::Tensor& queries_keys_values, int64_t head_width,
                         const at::Tensor& documents);

struct SelfAttentionOptions {
  int64_t width = 0, heads = 0;
  bool is_causal = true;
  bool divides_tokens = false;  // Input and output have divided tokens instead of being whole.
};

// x [batch, tokens, width] gives the same shape. Submodules: "qkv" [3 width, width] (queries,
// keys, values, each split into heads) and "out" [width, width], both with bias.
class SelfAttentionImpl : public torch::nn::Cloneable<SelfAttentionImpl> {
 public:
  // Throws Error(invalid_argument) unless the width is a multiple of the heads.
  explicit SelfAttentionImpl(const SelfAttentionOptions& options);

  at::Tensor forward(const at::Tensor& x);
  void reset() override;

  ColumnLinear qkv{nullptr};
  RowLinear out{nullptr};

 private:
  SelfAttentionOptions options_;
};
TORCH_MODULE(SelfAttention);

}  // namespace trireme::nn
