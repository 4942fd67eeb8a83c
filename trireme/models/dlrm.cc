#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tril_indices.h>
#include <fmt/format.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <trireme/base/error.h>
#include <trireme/base/hash.h>
#include <trireme/models/dlrm.h>
#include <trireme/parallel/model.h>
#include <trireme/parallel/nn/sharded_embedding.h>
#include <trireme/parallel/servers/tables/row_init.h>
#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

namespace trireme::models {
namespace {

// One vector for each feature, from int64 [batch, features].
using VectorsOf = std::function<Tensors(const at::Tensor& categories)>;
using Layers = std::vector<torch::nn::Linear>;

// mix64() (base/hash.h) of int64. Operations of LibTorch, because a model may be made without
// memory first (tensor/deferred_model.h).
at::Tensor mixed(const at::Tensor& numbers) {
  const auto as_int = [](uint64_t bits) { return static_cast<int64_t>(bits); };
  const auto shifted = [](const at::Tensor& x, int bits) {
    return x.__rshift__(bits).bitwise_and_((int64_t{1} << (64 - bits)) - 1);
  };
  at::Tensor x = numbers + as_int(0x9e3779b97f4a7c15ULL);
  x = x.bitwise_xor(shifted(x, 30)).mul_(as_int(0xbf58476d1ce4e5b9ULL));
  x = x.bitwise_xor(shifted(x, 27)).mul_(as_int(0x94d049bb133111ebULL));
  return x.bitwise_xor(shifted(x, 31));
}

// The values with which rows of a table on servers begin (servers::initial_row()): the same bits.
void fill_uniform(const at::Tensor& weight, const std::string& table, const RowInit& init) {
  constexpr int64_t kAtOnce = 1 << 18;
  const at::NoGradGuard no_grad;
  const int64_t rows = weight.size(0), width = weight.size(1);
  // The state of mix64(seed, table, row) after the first two.
  const auto key = static_cast<int64_t>(mix64(mix64(init.seed, servers::key_of_table(table))));
  const at::Tensor columns = at::arange(width, at::kLong);
  for (int64_t from = 0, count = 0; from < rows; from += count) {
    count = std::min(rows - from, std::max<int64_t>(1, kAtOnce / width));
    const at::Tensor keys = mixed(at::arange(from, from + count, at::kLong).bitwise_xor_(key));
    const at::Tensor bits =
        mixed(keys.unsqueeze(1) + columns).__rshift__(11).bitwise_and_((int64_t{1} << 53) - 1);
    weight.narrow(0, from, count)
        .copy_(bits.to(at::kDouble).add_(1).mul_(0x1p-53).mul_(2).sub_(1).mul_(init.scale));
  }
}

// The dot products of all pairs of different vectors [batch, vectors, D], behind the first vector.
at::Tensor interactions_of(const at::Tensor& vectors) {
  const int64_t count = vectors.size(1);
  const at::Tensor products = at::bmm(vectors, vectors.transpose(1, 2));
  const at::Tensor pairs = at::tril_indices(count, count, -1, at::TensorOptions(at::kLong));
  return at::cat(
      {vectors.select(1, 0), products.flatten(1).index_select(1, pairs[0] * count + pairs[1])}, 1);
}

at::Tensor with_relu(const torch::nn::Linear& layer, const at::Tensor& x) {
  return layer.ptr()->forward(x).relu_();
}

class Dlrm : public torch::nn::Module {
 public:
  Dlrm(const ModelOptions& options, const InputSpec& input,
       const std::shared_ptr<RowSource>& tables) {
    // One number of the generator, so that the layers behind are the same in both cases.
    const auto seed =
        static_cast<uint64_t>(at::randint(INT64_MAX, {1}, at::kLong).item<int64_t>());
    // The reference code of the paper starts each table from +-1/sqrt(rows): torch's 1 would make
    // the first dot products too large.
    const RowInit init{RowStart::uniform, 1 / std::sqrt(static_cast<double>(options.rows)), seed};
    if (tables)
      take_tables(tables_of_dlrm(options, input, /*unbounded=*/false), init, tables);
    else
      make_tables(tables_of_dlrm(options, input, /*unbounded=*/false), init);
    int64_t numbers = 1;
    for (const int64_t size : input.shape) numbers *= size;
    bottom_ = make_layers("bottom", numbers, options.bottom, options.embedding_dim);
    const int64_t vectors = input.categories + 1;
    top_ = make_layers("top", options.embedding_dim + vectors * (vectors - 1) / 2, options.top,
                       input.classes);
  }

  at::Tensor forward(const Tensors& inputs) {
    at::Tensor x = interactions_of(vectors_of(inputs, bottom_, embedded_));
    for (size_t i = 0; i + 1 < top_.size(); ++i) x = with_relu(top_[i], x);
    return top_.back()->forward(x);
  }

  std::vector<Block> blocks() const {
    std::vector<Block> blocks{
        {"features", features_, [bottom = bottom_, embedded = embedded_](const Tensors& inputs) {
           return Tensors{vectors_of(inputs, bottom, embedded)};
         }}};
    for (size_t i = 0; i < top_.size(); ++i) {
      const bool is_first = i == 0, is_last = i + 1 == top_.size();
      blocks.push_back({is_last ? "output" : fmt::format("top{}", i),
                        {top_[i].ptr()},
                        [layer = top_[i], is_first, is_last](const Tensors& inputs) {
                          const at::Tensor x = is_first ? interactions_of(inputs[0]) : inputs[0];
                          return Tensors{is_last ? layer.ptr()->forward(x) : with_relu(layer, x)};
                        }});
    }
    return blocks;
  }

 private:
  // [batch, 1 + features, D]: the vector of the numbers, and those of the categories.
  static at::Tensor vectors_of(const Tensors& inputs, const Layers& bottom,
                               const VectorsOf& embedded) {
    at::Tensor x = inputs[0].flatten(1);
    for (const torch::nn::Linear& layer : bottom) x = with_relu(layer, x);
    Tensors vectors = embedded(inputs[1]);
    for (at::Tensor& each : vectors) each = each.to(x.scalar_type());  // Servers have float32.
    vectors.insert(vectors.begin(), x);
    return at::stack(vectors, 1);
  }

  void make_tables(const std::vector<plan::TableSpec>& wanted, const RowInit& init) {
    const auto list = register_module("embeddings", torch::nn::ModuleList());
    std::vector<std::shared_ptr<torch::nn::EmbeddingImpl>> all;
    for (const plan::TableSpec& spec : wanted) {
      // With a weight it draws no initial values, which nobody needs.
      const torch::nn::Embedding table(torch::nn::EmbeddingOptions(spec.rows, spec.width)
                                           ._weight(at::empty({spec.rows, spec.width})));
      fill_uniform(table->weight, spec.name, init);
      list->push_back(table);
      all.push_back(table.ptr());
      features_.push_back(table.ptr());
    }
    embedded_ = [all, rows = wanted.at(0).rows](const at::Tensor& categories) {
      const Tensors columns = rows_of_categories(categories, rows).unbind(1);
      Tensors vectors;
      for (size_t i = 0; i < all.size(); ++i) vectors.push_back(all[i]->forward(columns[i]));
      return vectors;
    };
  }

  void take_tables(const std::vector<plan::TableSpec>& wanted, const RowInit& init,
                   const std::shared_ptr<RowSource>& tables) {
    const auto list = register_module("embeddings", torch::nn::ModuleList());
    std::vector<nn::ShardedEmbedding> all;
    int64_t rows = 0;
    for (const plan::TableSpec& table : wanted) {
      tables->begin_rows_with(tables->find(table.name), init);
      rows = tables->tables()[static_cast<size_t>(tables->find(table.name))].rows;
      all.emplace_back(tables, table.name, torch::nn::EmbeddingOptions(rows, table.width));
      list->push_back(all.back());
      features_.push_back(all.back().ptr());
    }
    embedded_ = [all, rows](const at::Tensor& categories) {
      return nn::forward_together(all, rows_of_categories(categories, rows).unbind(1));
    };
  }

  Layers make_layers(const std::string& name, int64_t width, std::vector<int64_t> widths,
                     int64_t last) {
    widths.push_back(last);
    const auto list = register_module(name, torch::nn::ModuleList());
    Layers layers;
    for (const int64_t out : widths) {
      layers.emplace_back(width, out);
      list->push_back(layers.back());
      if (name == "bottom") features_.push_back(layers.back().ptr());
      width = out;
    }
    return layers;
  }

  VectorsOf embedded_;
  Layers bottom_, top_;
  std::vector<std::shared_ptr<torch::nn::Module>> features_;  // Embeddings and bottom.
};

}  // namespace

at::Tensor rows_of_categories(const at::Tensor& categories, int64_t rows) {
  if (categories.dim() != 2 || categories.scalar_type() != at::kLong)
    throw Error(ErrorCode::invalid_argument, "models",
                fmt::format("categories of {} dims and type {}", categories.dim(),
                            c10::toString(categories.scalar_type())),
                "int64 [batch, features]");
  const at::Tensor from = categories.contiguous();
  at::Tensor result = at::empty_like(from);
  const int64_t features = from.size(1);
  const int64_t* const category = from.const_data_ptr<int64_t>();
  int64_t* const row = result.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < from.numel(); ++i) {
    const uint64_t mixed =
        mix64(static_cast<uint64_t>(i % features), static_cast<uint64_t>(category[i]));
    row[i] = static_cast<int64_t>(rows > 0 ? mixed % static_cast<uint64_t>(rows) : mixed);
  }
  return result;
}

Model make_dlrm(const ModelOptions& options, const InputSpec& input,
                const std::shared_ptr<RowSource>& tables) {
  const auto net = std::make_shared<Dlrm>(options, input, tables);
  return {net,
          [net](const Tensors& inputs) { return net->forward(inputs); },
          {"data", "categories"},
          net->blocks()};
}

Model make_dlrm(const ModelOptions& options, const InputSpec& input) {
  return make_dlrm(options, input, nullptr);
}

}  // namespace trireme::models
