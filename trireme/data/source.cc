#include <trireme/data/source.h>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/data/stack.h>
#include <trireme/tensor/replica_random.h>
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>

namespace trireme {
namespace {

std::string shape_of(const at::Tensor& tensor) {
  return tensor.defined() ? fmt::format("[{}]", fmt::join(tensor.sizes(), ", ")) : "nothing";
}

void check_index(int64_t index, int64_t size) {
  if (index < 0 || index >= size)
    throw Error(ErrorCode::invalid_argument, "data",
                fmt::format("sample {} is outside 0..{}", index, size - 1));
}

// Copies rows of a contiguous tensor on the calling thread alone; index_select would start a team
// of threads.
at::Tensor gather_rows(const at::Tensor& tensor, const std::vector<int64_t>& indices) {
  if (!tensor.device().is_cpu())
    return tensor.index_select(0, at::tensor(indices, at::kLong).to(tensor.device()));
  std::vector<int64_t> sizes = tensor.sizes().vec();
  sizes[0] = static_cast<int64_t>(indices.size());
  at::Tensor rows = at::empty(sizes, tensor.options());
  const size_t row_bytes =
      tensor.nbytes() / static_cast<size_t>(std::max<int64_t>(1, tensor.size(0)));
  if (row_bytes == 0) return rows;
  auto* to = static_cast<std::byte*>(rows.data_ptr());
  const auto* from = static_cast<const std::byte*>(tensor.const_data_ptr());
  for (const int64_t index : indices) {
    check_index(index, tensor.size(0));
    std::memcpy(to, from + static_cast<size_t>(index) * row_bytes, row_bytes);
    to += row_bytes;
  }
  return rows;
}

}  // namespace

Example Source::get_batch(const Draws& draws) const {
  if (draws.indices.empty())
    throw Error(ErrorCode::invalid_argument, "data",
                "get_batch() was asked for no samples; it needs at least one");
  ReplicaRandom random(0);
  std::vector<Example> examples;
  for (size_t i = 0; i < draws.indices.size(); ++i) {
    const Draw draw = draws.at(i);
    random.reseed(draw.seed);
    examples.push_back(get(draw));
  }
  return stack_examples(examples, draws.indices);
}

Example Source::get_kept(const Draws& draws, std::vector<size_t>&) const {
  return get_batch(draws);
}

KeptSamples kept_samples(const Source& source, const Draws& draws, std::vector<size_t>& left_out) {
  ReplicaRandom random(0);
  KeptSamples kept;
  for (size_t i = 0; i < draws.indices.size(); ++i) {
    const Draw draw = draws.at(i);
    random.reseed(draw.seed);
    if (std::optional<Example> example = source.get_if_kept(draw)) {
      kept.examples.push_back(*std::move(example));
      kept.indices.push_back(draw.index);
    } else {
      left_out.push_back(i);
    }
  }
  return kept;
}

Example batch_of_none(const Source& source) {
  std::vector<size_t> places;
  Example rows = source.get_kept(Draws({0}), places);
  const auto without_rows = [](at::Tensor& tensor) { tensor = tensor.narrow(0, 0, 0); };
  without_rows(rows.data);
  without_rows(rows.target);
  for (auto& [name, tensor] : rows.more) without_rows(tensor);
  return rows;
}

Example kept_one_by_one(const Source& source, const Draws& draws, std::vector<size_t>& left_out,
                        const Source& none) {
  const KeptSamples kept = kept_samples(source, draws, left_out);
  return kept.examples.empty() ? batch_of_none(none) : stack_examples(kept.examples, kept.indices);
}

void require_single_samples(const Source* source, const char* user) {
  if (!source || (!source->leaves_out() && !source->mixes_batches())) return;
  throw Error(ErrorCode::unsupported, "data",
              fmt::format("{}: a source {}", user,
                          source->mixes_batches() ? "mixes the samples of a batch"
                                                  : "may leave samples out"),
              "sources without filter, mixup, cutmix and data.on_bad_record=skip");
}

ImageSource::ImageSource(data::ImageTable table)
    : ImageSource(std::make_shared<const data::ImageTable>(std::move(table))) {}

ImageSource::ImageSource(std::shared_ptr<const data::ImageTable> table)
    : table_(std::move(table)), scale_(table_->scale) {
  const auto count = static_cast<size_t>(table_->count);
  image_pixels_ = table_->channels * table_->height * table_->width;
  if (table_->pixels.size() != count * static_cast<size_t>(image_pixels_) ||
      table_->labels.size() != count)
    throw Error(ErrorCode::invalid_argument, "data",
                fmt::format("{}: {} pixels and {} labels do not make {} images of {} x {} x {}",
                            table_->origin, table_->pixels.size(), table_->labels.size(),
                            table_->count, table_->channels, table_->height, table_->width));
}

int64_t ImageSource::size() const { return table_->count; }

Example ImageSource::get(const Draw& draw) const {
  Example row = get_batch({draw.index});
  return {row.data[0], row.target[0]};
}

Example ImageSource::get_batch(const Draws& draws) const {
  const std::vector<int64_t>& indices = draws.indices;
  const auto rows = static_cast<int64_t>(indices.size());
  Example batch{at::empty({rows, table_->channels, table_->height, table_->width}, at::kFloat),
                at::empty({rows}, at::kLong)};
  auto* data = batch.data.mutable_data_ptr<float>();
  auto* target = batch.target.mutable_data_ptr<int64_t>();
  for (const int64_t index : indices) {
    check_index(index, table_->count);
    scale_.convert(table_->pixels.data() + index * image_pixels_, image_pixels_, data);
    data += image_pixels_;
    *target++ = table_->labels[static_cast<size_t>(index)];
  }
  return batch;
}

TensorSource::TensorSource(at::Tensor data, at::Tensor target) {
  const bool have_rows = data.defined() && target.defined() && data.dim() > 0 && target.dim() > 0;
  if (!have_rows || data.size(0) != target.size(0))
    throw Error(
        ErrorCode::invalid_argument, "data",
        fmt::format(
            "data is {} and target {}; their first sizes, the number of samples, must be equal",
            shape_of(data), shape_of(target)));
  data_ = data.detach().contiguous();
  target_ = target.detach().contiguous();
}

int64_t TensorSource::size() const { return data_.size(0); }

Example TensorSource::get(const Draw& draw) const {
  check_index(draw.index, size());
  return {data_[draw.index], target_[draw.index]};
}

Example TensorSource::get_batch(const Draws& draws) const {
  return {gather_rows(data_, draws.indices), gather_rows(target_, draws.indices)};
}

}  // namespace trireme
