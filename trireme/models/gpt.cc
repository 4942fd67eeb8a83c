#include <torch/nn/init.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/embedding.h>
#include <trireme/models/gpt.h>
#include <trireme/parallel/model.h>
#include <trireme/parallel/nn/attention.h>
#include <trireme/parallel/nn/layer_norm.h>
#include <trireme/parallel/nn/vocabulary.h>
#include <functional>

namespace trireme::models {
namespace {

// Along a tensor axis, activations between blocks have divided tokens.
class GptBlock : public torch::nn::Module {
 public:
  GptBlock(int64_t width, int64_t heads) : head_width_(width / heads) {
    attention_norm_ = register_module("attention_norm", nn::SequenceLayerNorm(width));
    qkv_ = register_module(
        "qkv",
        nn::ColumnLinear(nn::ColumnLinearOptions{
            .in = width, .out = 3 * width, .sections = 3, .heads = heads, .takes_tokens = true}));
    attention_out_ = register_module("attention_out", row_layer(width, width));
    mlp_norm_ = register_module("mlp_norm", nn::SequenceLayerNorm(width));
    mlp_in_ = register_module("mlp_in", nn::ColumnLinear(nn::ColumnLinearOptions{
                                            .in = width, .out = 4 * width, .takes_tokens = true}));
    mlp_out_ = register_module("mlp_out", row_layer(4 * width, width));
  }

  // `documents`, if given, are those of packs.
  at::Tensor forward(const at::Tensor& input, const at::Tensor& documents = {}) {
    const at::Tensor qkv = qkv_->forward(attention_norm_->forward(input));
    const at::Tensor mixed = documents.defined()
                                 ? nn::attend_within(qkv, head_width_, documents)
                                 : nn::attend(qkv, head_width_, /*is_causal=*/true);
    const at::Tensor x = input + attention_out_->forward(mixed);
    return x + mlp_out_->forward(torch::gelu(mlp_in_->forward(mlp_norm_->forward(x))));
  }

 private:
  static nn::RowLinear row_layer(int64_t in, int64_t out) {
    return nn::RowLinear(nn::RowLinearOptions{.in = in, .out = out, .gives_tokens = true});
  }

  int64_t head_width_;
  nn::SequenceLayerNorm attention_norm_{nullptr}, mlp_norm_{nullptr};
  nn::ColumnLinear qkv_{nullptr}, mlp_in_{nullptr};
  nn::RowLinear attention_out_{nullptr}, mlp_out_{nullptr};
};

class Gpt : public torch::nn::Module {
 public:
  explicit Gpt(const ModelOptions& options) {
    token_embedding_ = register_module("token_embedding",
                                       nn::VocabularyEmbedding(options.vocabulary, options.width));
    position_embedding_ = register_module("position_embedding",
                                          torch::nn::Embedding(options.context, options.width));
    const auto list = register_module("blocks", torch::nn::ModuleList());
    for (int64_t layer = 0; layer < options.layers; ++layer) {
      blocks_.push_back(std::make_shared<GptBlock>(options.width, options.heads));
      list->push_back(blocks_.back());
    }
    final_norm_ = register_module("final_norm", nn::SequenceLayerNorm(options.width));
    if (options.tied == 1) {
      torch::nn::init::normal_(token_embedding_->weight, 0, 0.02);
      torch::nn::init::normal_(position_embedding_->weight, 0, 0.02);
    } else {
      head_ = register_module("head",
                              nn::ColumnLinear(nn::ColumnLinearOptions{.in = options.width,
                                                                       .out = options.vocabulary,
                                                                       .bias = false,
                                                                       .takes_tokens = true,
                                                                       .gathers = true}));
    }
  }

  // Tokens, and for packs their positions and documents.
  at::Tensor forward(const Tensors& inputs) {
    Tensors x = embedded(inputs, *token_embedding_, *position_embedding_);
    for (auto& block : blocks_) x = through(*block, x);
    return logits()(x[0]);
  }

  std::vector<Block> blocks() const {
    std::vector<Block> blocks;
    blocks.push_back(
        {"embedding",
         {token_embedding_.ptr(), position_embedding_.ptr()},
         [tokens = token_embedding_.ptr(), positions = position_embedding_.ptr()](
             const Tensors& inputs) { return embedded(inputs, *tokens, *positions); }});
    for (const auto& block : blocks_)
      blocks.push_back({"block" + std::to_string(blocks.size() - 1),
                        {block},
                        [block](const Tensors& x) { return through(*block, x); }});
    std::shared_ptr<torch::nn::Module> output = token_embedding_.ptr();
    if (!head_.is_empty()) output = head_.ptr();
    blocks.push_back({"head", {final_norm_.ptr(), output}, [logits = logits()](const Tensors& x) {
                        return Tensors{logits(x[0])};
                      }});
    return blocks;
  }

 private:
  // The documents of packs go along with the activations.
  static Tensors embedded(const Tensors& inputs, nn::VocabularyEmbeddingImpl& embedding,
                          torch::nn::EmbeddingImpl& positions) {
    const at::Tensor& tokens = inputs[0];
    const bool is_packed = inputs.size() > 1;
    const at::Tensor places =
        is_packed ? positions.forward(inputs[1]) : positions.weight.narrow(0, 0, tokens.size(1));
    Tensors x{nn::divide_tokens(embedding.forward(tokens) + places, embedding.ranks())};
    if (is_packed) x.push_back(inputs[2]);
    return x;
  }
  static Tensors through(GptBlock& block, const Tensors& x) {
    if (x.size() == 1) return {block.forward(x[0])};
    return {block.forward(x[0], x[1]), x[1]};
  }
  // From the output of the last block. It holds only the modules that it needs.
  std::function<at::Tensor(const at::Tensor& x)> logits() const {
    if (head_.is_empty())
      return [norm = final_norm_.ptr(), embedding = token_embedding_.ptr()](const at::Tensor& x) {
        return embedding->logits(norm->forward(x)).flatten(0, 1);
      };
    return [norm = final_norm_.ptr(), head = head_.ptr()](const at::Tensor& x) {
      return head->forward(norm->forward(x)).flatten(0, 1);
    };
  }

  nn::VocabularyEmbedding token_embedding_{nullptr};
  torch::nn::Embedding position_embedding_{nullptr};
  std::vector<std::shared_ptr<GptBlock>> blocks_;
  nn::SequenceLayerNorm final_norm_{nullptr};
  nn::ColumnLinear head_{nullptr};  // Empty if its weights are those of the token embedding.
};

}  // namespace

Model make_gpt(const ModelOptions& options, const InputSpec& input) {
  const auto net = std::make_shared<Gpt>(options);
  Model model{net, [net](const Tensors& inputs) { return net->forward(inputs); }};
  if (input.is_packed) model.inputs = {"data", "positions", "documents"};
  model.blocks = net->blocks();
  return model;
}

}  // namespace trireme::models
