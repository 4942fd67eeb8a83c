#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <trireme/base/error.h>
#include <trireme/parallel/nn/sharded_embedding.h>
#include <trireme/parallel/servers/tables/row_index.h>
#include <algorithm>
#include <ostream>
#include <utility>

namespace trireme::nn {
namespace {

[[noreturn]] void refuse_embedding(ErrorCode code, const std::string& what,
                                   const std::string& remedy) {
  throw Error(code, "parallel", what, remedy);
}

// As torch::nn::Embedding counts it: from the end, if it is negative.
std::optional<int64_t> padding_of(const torch::nn::EmbeddingOptions& options,
                                  const plan::TableSpec& spec) {
  if (!options.padding_idx()) return std::nullopt;
  const int64_t given = *options.padding_idx();
  if (!spec.is_bounded()) return given;  // Any int64 is a row.
  if (given < -spec.rows || given >= spec.rows)
    refuse_embedding(ErrorCode::invalid_argument,
                     fmt::format("padding_idx {} is outside table '{}', which has rows 0 to {}",
                                 given, spec.name, spec.rows - 1),
                     "a row of the table, or -1 for the last one");
  return given < 0 ? given + spec.rows : given;
}

}  // namespace

ShardedEmbeddingImpl::ShardedEmbeddingImpl(std::shared_ptr<RowSource> tables,
                                           const std::string& table,
                                           const torch::nn::EmbeddingOptions& options)
    : tables_(std::move(tables)),
      table_(tables_->find(table)),
      spec_(tables_->tables()[static_cast<size_t>(table_)]),
      padding_(padding_of(options, spec_)) {
  if (options.num_embeddings() != spec_.rows || options.embedding_dim() != spec_.width)
    refuse_embedding(
        ErrorCode::invalid_argument,
        fmt::format("an embedding of {} rows with {} values of table {}", options.num_embeddings(),
                    options.embedding_dim(), spec_.describe()),
        fmt::format("EmbeddingOptions({}, {})", spec_.rows, spec_.width));
  if (options.max_norm() || options.scale_grad_by_freq() || options._weight().defined())
    refuse_embedding(ErrorCode::unsupported,
                     fmt::format("table '{}' on servers with max_norm, scale_grad_by_freq or "
                                 "weights of its own",
                                 spec_.name),
                     "leave these options out, or torch::nn::Embedding");
}

ShardedEmbeddingImpl::Looked ShardedEmbeddingImpl::look_at(const at::Tensor& indices) {
  if (indices.scalar_type() != at::kLong && indices.scalar_type() != at::kInt)
    refuse_embedding(ErrorCode::invalid_argument,
                     fmt::format("the indices into table '{}' are {}", spec_.name,
                                 c10::toString(indices.scalar_type())),
                     "int64 or int32");
  const at::Tensor flat = indices.to(at::kLong).contiguous();
  const int64_t count = flat.numel();
  const int64_t* const wanted = flat.const_data_ptr<int64_t>();
  Looked looked{at::empty({count}, at::kLong), at::empty({count}, at::kLong),
                indices.sizes().vec()};
  looked.shape.push_back(spec_.width);
  places_.clear();
  int64_t* const rows = looked.rows.mutable_data_ptr<int64_t>();
  int64_t* const inverse = looked.inverse.mutable_data_ptr<int64_t>();
  int64_t found = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (!spec_.has(wanted[i]))
      refuse_embedding(
          ErrorCode::invalid_argument,
          fmt::format("index {} at position {} of worker {}'s batch is outside table '{}', which "
                      "has rows 0 to {}",
                      wanted[i], i, tables_->worker(), spec_.name, spec_.rows - 1),
          "a larger table, or indices hashed into it");
    if (padding_ && wanted[i] == *padding_) {
      inverse[i] = -1;
      looked.has_padding = true;
      continue;
    }
    inverse[i] = places_.find_or_add(wanted[i], static_cast<uint32_t>(found));
    if (inverse[i] == found) rows[found++] = wanted[i];
  }
  if (found == count) {
    looked.inverse.reset();
    return looked;
  }
  for (int64_t i = 0; looked.has_padding && i < count; ++i)
    if (inverse[i] < 0) inverse[i] = found;
  looked.rows = looked.rows.narrow(0, 0, found);
  return looked;
}

at::Tensor ShardedEmbeddingImpl::output_of(const Looked& looked, const at::Tensor& values) const {
  if (!looked.inverse.defined()) return values.view(looked.shape);
  if (!looked.has_padding) return at::embedding(values, looked.inverse).view(looked.shape);
  const at::Tensor with_zeros =
      at::cat({values, at::zeros({1, spec_.width}, values.options().requires_grad(false))});
  return at::embedding(with_zeros, looked.inverse, /*padding_idx=*/values.size(0))
      .view(looked.shape);
}

at::Tensor ShardedEmbeddingImpl::forward(const at::Tensor& indices) {
  return run({this}, {indices})[0];
}

void ShardedEmbeddingImpl::pretty_print(std::ostream& stream) const {
  stream << "trireme::nn::ShardedEmbedding(" << spec_.describe() << ")";
}

std::vector<at::Tensor> ShardedEmbeddingImpl::run(
    const std::vector<ShardedEmbeddingImpl*>& embeddings, const std::vector<at::Tensor>& indices) {
  std::vector<Looked> looked;
  std::vector<RowsOfTable> wanted;
  for (size_t i = 0; i < embeddings.size(); ++i) {
    looked.push_back(embeddings[i]->look_at(indices[i]));
    wanted.push_back({embeddings[i]->table_, looked.back().rows});
  }
  RowSource& tables = embeddings[0]->tables();
  const bool trains = embeddings[0]->is_training() && at::GradMode::is_enabled();
  const Deadline deadline = Deadline::after(tables.patience());
  const std::vector<at::Tensor> values =
      trains ? tables.pull(wanted, deadline) : tables.peek(wanted, deadline);
  std::vector<at::Tensor> outputs;
  for (size_t i = 0; i < embeddings.size(); ++i)
    outputs.push_back(embeddings[i]->output_of(looked[i], values[i]));
  return outputs;
}

std::vector<at::Tensor> forward_together(const std::vector<ShardedEmbedding>& embeddings,
                                         const std::vector<at::Tensor>& indices) {
  if (embeddings.empty()) return {};
  std::vector<ShardedEmbeddingImpl*> all;
  for (const ShardedEmbedding& each : embeddings) all.push_back(each.ptr().get());
  const bool fits = std::ranges::all_of(all, [first = all[0]](const auto* each) {
    return &each->tables() == &first->tables() && each->is_training() == first->is_training();
  });
  if (!fits || indices.size() != all.size())
    refuse_embedding(ErrorCode::invalid_argument,
                     fmt::format("{} embeddings together, with {} tensors of indices", all.size(),
                                 indices.size()),
                     "embeddings of one client, all in training or none, and indices for each");
  return ShardedEmbeddingImpl::run(all, indices);
}

}  // namespace trireme::nn
