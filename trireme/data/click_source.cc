#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/data/click_source.h>
#include <trireme/data/kinds/criteo_set.h>
#include <algorithm>

namespace trireme {

using data::kClickCategories;
using data::kClickNumbers;

Example ClickSource::get(const Draw& draw) const {
  Example row = get_batch({draw.index});
  return {row.data[0], row.target[0], {{"categories", row.more.at("categories")[0]}}};
}

Example ClickSource::get_batch(const Draws& draws) const {
  const auto rows = static_cast<int64_t>(draws.indices.size());
  Example batch{at::empty({rows, kClickNumbers}, at::kFloat), at::empty({rows}, at::kLong)};
  at::Tensor categories = at::empty({rows, kClickCategories}, at::kLong);
  auto* number = batch.data.mutable_data_ptr<float>();
  auto* target = batch.target.mutable_data_ptr<int64_t>();
  auto* category = categories.mutable_data_ptr<int64_t>();
  for (const int64_t index : draws.indices) {
    if (index < 0 || index >= size())
      throw Error(ErrorCode::invalid_argument, "data",
                  fmt::format("sample {} is outside 0..{}", index, size() - 1));
    number = std::copy_n(table_->numbers.begin() + index * kClickNumbers, kClickNumbers, number);
    category = std::copy_n(table_->categories.begin() + index * kClickCategories, kClickCategories,
                           category);
    *target++ = table_->labels[static_cast<size_t>(index)];
  }
  batch.more.emplace("categories", std::move(categories));
  return batch;
}

data::Sources data::click_sources(const Dataset& data) {
  const auto& parts = std::any_cast<const ClickParts&>(data.samples);
  Sources sources{std::make_shared<ClickSource>(parts.train), nullptr};
  if (data.test_samples > 0) sources.test = std::make_shared<ClickSource>(parts.test);
  return sources;
}

}  // namespace trireme
