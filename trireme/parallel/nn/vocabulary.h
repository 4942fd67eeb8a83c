// The vocabulary of a language model, divided among the ranks of a tensor axis: the embedding of
// its tokens, and the loss over it.
#pragma once
#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>
#include <trireme/parallel/nn/exchanges.h>
#include <trireme/parallel/nn/tensor_parallel_layer.h>

namespace trireme::nn {

// torch::nn::Embedding whose rows the ranks divide (Shoeybi et al. 2019, section 3): each rank
// looks up its own tokens, the others are zeros, and the ranks add up. The parts may differ by one
// row.
class VocabularyEmbeddingImpl : public torch::nn::Cloneable<VocabularyEmbeddingImpl>,
                                public TensorParallelLayer {
 public:
  // Throws Error(invalid_argument) unless both are positive.
  VocabularyEmbeddingImpl(int64_t vocabulary, int64_t width);

  // int64 tokens [...] give [..., width], whole. Throws Error(invalid_argument) for a token
  // outside the vocabulary; alone, torch's own error.
  at::Tensor forward(const at::Tensor& tokens);
  // x weight^T: whole logits [..., vocabulary] of x [..., width] with divided tokens, for a model
  // whose output weight is tied to its embedding.
  at::Tensor logits(const at::Tensor& x);
  void reset() override;
  std::vector<ParameterParts> parts(const std::string& layer, int rank, int ranks) const override;

  at::Tensor weight;  // [vocabulary, width]

 private:
  int64_t vocabulary_, width_;
};
TORCH_MODULE(VocabularyEmbedding);

// The mean cross entropy of logits with divided columns (a ColumnLinear that does not gather),
// without whole logits on any rank: [rows, this rank's columns], and int64 targets [rows] in the
// whole vocabulary, the same on all ranks. Three numbers for each row travel in forward, none in
// backward (the end of section 3 of the same paper). Computes in float32 at least. COLLECTIVE in
// forward. A null group: at::cross_entropy_loss. Throws Error(invalid_argument) for a target
// outside the vocabulary.
at::Tensor vocabulary_cross_entropy(const at::Tensor& logits, const at::Tensor& targets,
                                    int64_t vocabulary, const Ranks& ranks);

}  // namespace trireme::nn
