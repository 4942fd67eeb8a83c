#include <torch/nn/init.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <trireme/models/gpt.h>
#include <trireme/parallel/model.h>

namespace trireme::models {
namespace {

class GptBlock : public torch::nn::Module {
 public:
  GptBlock(int64_t width, int64_t heads) : heads_(heads) {
    attention_norm_ = register_module("attention_norm",
                                      torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
    qkv_ = register_module("qkv", torch::nn::Linear(width, 3 * width));
    attention_out_ = register_module("attention_out", torch::nn::Linear(width, width));
    mlp_norm_ =
        register_module("mlp_norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
    mlp_in_ = register_module("mlp_in", torch::nn::Linear(width, 4 * width));
    mlp_out_ = register_module("mlp_out", torch::nn::Linear(4 * width, width));
  }

  at::Tensor forward(const at::Tensor& input) {
    const at::Tensor x = input + attend(attention_norm_->forward(input));
    return x + mlp_out_->forward(torch::gelu(mlp_in_->forward(mlp_norm_->forward(x))));
  }

 private:
  at::Tensor attend(const at::Tensor& x) {
    const int64_t batch = x.size(0), tokens = x.size(1), width = x.size(2);
    // [batch, tokens, 3 * width] -> three of [batch, heads, tokens, width / heads].
    const at::Tensor qkv =
        qkv_->forward(x).view({batch, tokens, 3, heads_, width / heads_}).permute({2, 0, 3, 1, 4});
    const at::Tensor mixed = at::scaled_dot_product_attention(qkv[0], qkv[1], qkv[2],
                                                              /*attn_mask=*/{}, /*dropout_p=*/0.0,
                                                              /*is_causal=*/true);
    return attention_out_->forward(mixed.transpose(1, 2).reshape({batch, tokens, width}));
  }

  int64_t heads_;
  torch::nn::LayerNorm attention_norm_{nullptr}, mlp_norm_{nullptr};
  torch::nn::Linear qkv_{nullptr}, attention_out_{nullptr}, mlp_in_{nullptr}, mlp_out_{nullptr};
};

class Gpt : public torch::nn::Module {
 public:
  explicit Gpt(const ModelOptions& options) {
    token_embedding_ = register_module("token_embedding",
                                       torch::nn::Embedding(options.vocabulary, options.width));
    position_embedding_ = register_module("position_embedding",
                                          torch::nn::Embedding(options.context, options.width));
    const auto list = register_module("blocks", torch::nn::ModuleList());
    for (int64_t layer = 0; layer < options.layers; ++layer) {
      blocks_.push_back(std::make_shared<GptBlock>(options.width, options.heads));
      list->push_back(blocks_.back());
    }
    final_norm_ = register_module(
        "final_norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({options.width})));
    if (options.tied == 1) {
      for (const auto& embedding : {token_embedding_, position_embedding_})
        torch::nn::init::normal_(embedding->weight, 0, 0.02);
    } else {
      head_ = register_module(
          "head", torch::nn::Linear(
                      torch::nn::LinearOptions(options.width, options.vocabulary).bias(false)));
    }
  }

  at::Tensor forward(const at::Tensor& tokens) {
    at::Tensor x = token_embedding_->forward(tokens) +
                   position_embedding_->weight.narrow(0, 0, tokens.size(1));
    for (auto& block : blocks_) x = block->forward(x);
    return logits_of(final_norm_->forward(x), output_weight());
  }

  std::vector<Block> blocks() const {
    std::vector<Block> blocks;
    blocks.push_back({"embedding",
                      {token_embedding_.ptr(), position_embedding_.ptr()},
                      [tokens = token_embedding_.ptr(),
                       positions = position_embedding_.ptr()](const Tensors& inputs) {
                        return Tensors{tokens->forward(inputs[0]) +
                                       positions->weight.narrow(0, 0, inputs[0].size(1))};
                      }});
    for (const auto& block : blocks_)
      blocks.push_back({"block" + std::to_string(blocks.size() - 1),
                        {block},
                        [block](const Tensors& x) { return Tensors{block->forward(x[0])}; }});
    if (head_.is_empty()) {
      blocks.push_back(head_block(token_embedding_.ptr()));
    } else {
      blocks.push_back(head_block(head_.ptr()));
    }
    return blocks;
  }

 private:
  static at::Tensor logits_of(const at::Tensor& x, const at::Tensor& weight) {
    return torch::nn::functional::linear(x, weight).flatten(0, 1);
  }
  const at::Tensor& output_weight() const {
    return head_.is_empty() ? token_embedding_->weight : head_->weight;
  }
  // `output` has the weight of the logits.
  template <typename Layer>
  Block head_block(const std::shared_ptr<Layer>& output) const {
    return {
        "head", {final_norm_.ptr(), output}, [norm = final_norm_.ptr(), output](const Tensors& x) {
          return Tensors{logits_of(norm->forward(x[0]), output->weight)};
        }};
  }

  torch::nn::Embedding token_embedding_{nullptr}, position_embedding_{nullptr};
  std::vector<std::shared_ptr<GptBlock>> blocks_;
  torch::nn::LayerNorm final_norm_{nullptr};
  torch::nn::Linear head_{nullptr};  // Empty if its weights are those of the token embedding.
};

}  // namespace

Model make_gpt(const ModelOptions& options, const InputSpec&) {
  return model_factory<Gpt>(options)();
}

}  // namespace trireme::models
