#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/data/kinds/text_set.h>
#include <trireme/data/text_source.h>
#include <algorithm>

namespace trireme {

TextSource::TextSource(std::shared_ptr<const data::TextTokens> text, int64_t first, int64_t last)
    : text_(std::move(text)), first_(first), last_(last) {
  if (first < 0 || last < first || last > text_->samples())
    throw Error(ErrorCode::invalid_argument, "data",
                fmt::format("samples {} to {} of {}, which has {}", first, last, text_->origin,
                            text_->samples()));
}

Example TextSource::get(const Draw& draw) const {
  Example row = get_batch({draw.index});
  return {row.data[0], row.target[0]};
}

Example TextSource::get_batch(const Draws& draws) const {
  const std::vector<int64_t>& indices = draws.indices;
  const int64_t block = text_->block, rows = static_cast<int64_t>(indices.size());
  Example batch{at::empty({rows, block}, at::kLong), at::empty({rows, block}, at::kLong)};
  auto* data = batch.data.mutable_data_ptr<int64_t>();
  auto* target = batch.target.mutable_data_ptr<int64_t>();
  for (const int64_t index : indices) {
    if (index < 0 || index >= size())
      throw Error(ErrorCode::invalid_argument, "data",
                  fmt::format("sample {} is outside 0..{}", index, size() - 1));
    const auto start = text_->tokens.begin() + (first_ + index) * block;
    data = std::copy(start, start + block, data);
    target = std::copy(start + 1, start + 1 + block, target);
  }
  return batch;
}

data::Sources data::text_sources(const Dataset& data) {
  const auto& text = std::any_cast<const SharedText&>(data.samples);
  const int64_t train = data.train_samples, all = train + data.test_samples;
  Sources sources{std::make_shared<TextSource>(text, 0, train), nullptr};
  if (all > train) sources.test = std::make_shared<TextSource>(text, train, all);
  return sources;
}

}  // namespace trireme
