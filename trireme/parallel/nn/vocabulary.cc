#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/functional/linear.h>
#include <torch/nn/init.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/parallel/nn/divided_sizes.h>
#include <trireme/parallel/nn/vocabulary.h>

namespace trireme::nn {
namespace {

// This rank's rows of the vocabulary for these tokens, and whether it has none for them.
struct OwnTokens {
  at::Tensor rows, absent;
};

OwnTokens own_tokens_of(const at::Tensor& tokens, int64_t vocabulary, Group& ranks) {
  if (tokens.numel() > 0) {
    const auto least = tokens.min().item<int64_t>(), most = tokens.max().item<int64_t>();
    if (least < 0 || most >= vocabulary)
      throw Error(ErrorCode::invalid_argument, "parallel",
                  fmt::format("the token {} is outside a vocabulary of {}",
                              least < 0 ? least : most, vocabulary),
                  "a larger vocabulary");
  }
  const auto [first, last] = range_of(vocabulary, ranks.rank(), ranks.size());
  const at::Tensor absent = tokens.lt(first).logical_or_(tokens.ge(last));
  return {(tokens - first).masked_fill_(absent, 0), absent};
}

// Gradients of the loss need softmax and targets, which each rank has for its own columns.
class DividedCrossEntropy : public torch::autograd::Function<DividedCrossEntropy> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& logits,
                            const at::Tensor& rows, const at::Tensor& absent, const Ranks& ranks) {
    const bool is_half = logits.scalar_type() != at::kDouble;
    const at::Tensor wide = is_half ? logits.to(at::kFloat) : logits;
    const at::Tensor most = wide.amax(1);
    ranks->all_reduce(most, ReduceOp::max);
    at::Tensor softmax = (wide - most.unsqueeze(1)).exp_();
    const at::Tensor sums = at::empty({2, wide.size(0)}, wide.options());
    sums[0].copy_(softmax.sum(1));
    sums[1].copy_(wide.gather(1, rows.unsqueeze(1)).squeeze(1).sub_(most).masked_fill_(absent, 0));
    ranks->all_reduce(sums);
    softmax.div_(sums[0].unsqueeze(1));
    context->save_for_backward({softmax, rows, absent});
    context->saved_data["type"] = static_cast<int64_t>(logits.scalar_type());
    return (sums[0].log() - sums[1]).mean();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    if (at::GradMode::is_enabled())
      throw Error(ErrorCode::unsupported, "parallel",
                  "gradients of gradients through vocabulary_cross_entropy",
                  "backward() without create_graph, or logits that are gathered");
    const auto saved = context->get_saved_variables();
    const at::Tensor minus = saved[2].to(saved[0].scalar_type()).sub_(1).unsqueeze(1);
    at::Tensor gradient = saved[0].scatter_add(1, saved[1].unsqueeze(1), minus);
    gradient.mul_(grads[0] / static_cast<double>(gradient.size(0)));
    const auto type = static_cast<at::ScalarType>(context->saved_data["type"].toInt());
    return {gradient.to(type), {}, {}, {}};
  }
};

}  // namespace

VocabularyEmbeddingImpl::VocabularyEmbeddingImpl(int64_t vocabulary, int64_t width)
    : vocabulary_(vocabulary), width_(width) {
  require_positive("VocabularyEmbedding's vocabulary", vocabulary);
  require_positive("VocabularyEmbedding's width", width);
  reset();
}

void VocabularyEmbeddingImpl::reset() {
  weight = register_parameter("weight", at::empty({vocabulary_, width_}));
  torch::nn::init::normal_(weight);
}

at::Tensor VocabularyEmbeddingImpl::forward(const at::Tensor& tokens) {
  if (!ranks()) return at::embedding(weight, tokens);
  const OwnTokens own = own_tokens_of(tokens, vocabulary_, *ranks());
  return sum_terms(at::embedding(weight, own.rows).masked_fill(own.absent.unsqueeze(-1), 0),
                   ranks());
}

at::Tensor VocabularyEmbeddingImpl::logits(const at::Tensor& x) {
  return gather_columns(
      torch::nn::functional::linear(enter_columns_from_tokens(x, ranks()), weight), vocabulary_,
      ranks());
}

std::vector<ParameterParts> VocabularyEmbeddingImpl::parts(const std::string& layer, int rank,
                                                           int ranks) const {
  require_enough(layer, vocabulary_, "rows of the vocabulary", ranks);
  const auto [first, last] = range_of(vocabulary_, rank, ranks);
  plan::TensorSlice rows = plan::TensorSlice::whole("weight", {vocabulary_, width_});
  rows.from[0] = first;
  rows.sizes[0] = last - first;
  return {{"weight", {rows}}};
}

at::Tensor vocabulary_cross_entropy(const at::Tensor& logits, const at::Tensor& targets,
                                    int64_t vocabulary, const Ranks& ranks) {
  if (!ranks) return at::cross_entropy_loss(logits, targets);
  const OwnTokens own = own_tokens_of(targets, vocabulary, *ranks);
  return DividedCrossEntropy::apply(logits, own.rows, own.absent, ranks);
}

}  // namespace trireme::nn
