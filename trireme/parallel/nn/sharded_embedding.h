// An embedding whose rows live on parameter servers: a worker has only the rows of its batch, so
// the table may be larger than its memory.
#pragma once
#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/options/embedding.h>
#include <torch/nn/pimpl.h>
#include <trireme/parallel/servers/tables/row_index.h>
#include <trireme/parallel/servers/tables/row_source.h>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace trireme::nn {

class ShardedEmbedding;

// torch::nn::Embedding on servers, with its options: num_embeddings (0 for an unbounded table),
// embedding_dim and padding_idx. It has no parameter of its own. In training, forward() pulls each
// row of the batch once, and the owner of the tables sends one gradient for each row. In
// evaluation mode, or without autograd's grad mode, it only reads.
class ShardedEmbeddingImpl : public torch::nn::Module {
 public:
  // Throws Error(invalid_argument) if the table is not on the servers with these sizes, or if the
  // padding index is outside. Throws Error(unsupported) for max_norm, scale_grad_by_freq, and
  // weights of one's own.
  ShardedEmbeddingImpl(std::shared_ptr<RowSource> tables, const std::string& table,
                       const torch::nn::EmbeddingOptions& options);

  // int64 or int32 indices [...] give float32 [..., embedding_dim]. The padding index gives zeros,
  // and no gradient. Throws Error(invalid_argument) naming table, row and position for an index
  // outside the table, and as RowSource::pull() does.
  at::Tensor forward(const at::Tensor& indices);
  void pretty_print(std::ostream& stream) const override;

  RowSource& tables() const { return *tables_; }

 private:
  friend std::vector<at::Tensor> forward_together(const std::vector<ShardedEmbedding>& embeddings,
                                                  const std::vector<at::Tensor>& indices);
  static std::vector<at::Tensor> run(const std::vector<ShardedEmbeddingImpl*>& embeddings,
                                     const std::vector<at::Tensor>& indices);
  // The indices of a batch: their different rows, and which of them each index is.
  struct Looked {
    at::Tensor rows;     // int64 [n], without the padding index.
    at::Tensor inverse;  // int64 [indices]; n for the padding index. Undefined: 0, 1, 2, ...
    std::vector<int64_t> shape;
    bool has_padding = false;
  };
  Looked look_at(const at::Tensor& indices);
  at::Tensor output_of(const Looked& looked, const at::Tensor& values) const;

  std::shared_ptr<RowSource> tables_;
  int table_;
  plan::TableSpec spec_;
  std::optional<int64_t> padding_;
  servers::RowIndex places_;  // Of the rows in a batch; its memory is kept.
};
TORCH_MODULE(ShardedEmbedding);

// The outputs of several embeddings, each with its indices, for the price of one pull. Throws
// Error(invalid_argument) unless all are of one client, and are in the same mode.
std::vector<at::Tensor> forward_together(const std::vector<ShardedEmbedding>& embeddings,
                                         const std::vector<at::Tensor>& indices);

}  // namespace trireme::nn
