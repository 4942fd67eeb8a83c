// A data set of torch::data as a Source, for the Trainer and for trireme::Loader:
//
//   auto train = trireme::from_dataset(torch::data::datasets::MNIST("data"));
#pragma once
#include <ATen/core/Tensor.h>
#include <torch/data/datasets/base.h>
#include <torch/data/example.h>
#include <trireme/base/error.h>
#include <trireme/data/source.h>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace trireme {
namespace detail {

template <typename Sample>
inline constexpr bool is_pair_of_tensors =
    std::is_same_v<std::remove_cvref_t<Sample>, torch::data::Example<>>;
template <typename Sample>
inline constexpr bool is_one_tensor =
    std::is_same_v<std::remove_cvref_t<Sample>, torch::data::TensorExample>;

template <typename Dataset>
class DatasetSource : public Source {
 public:
  DatasetSource(Dataset dataset, int64_t size) : prototype_(std::move(dataset)), size_(size) {}

  int64_t size() const override { return size_; }
  Example get(const Draw& draw) const override {
    std::unique_ptr<Dataset> mine = take();
    const size_t index = static_cast<size_t>(draw.index);
    auto batch = mine->get_batch(std::vector<size_t>{index});
    give_back(std::move(mine));
    using Given = decltype(batch);
    if constexpr (is_pair_of_tensors<Given>)
      return {batch.data.squeeze(0), batch.target.squeeze(0)};  // `Stack` was mapped over it.
    else if constexpr (is_one_tensor<Given>)
      return {batch.data.squeeze(0), batch.data.squeeze(0)};
    else if constexpr (is_pair_of_tensors<typename Given::value_type>)
      return {batch.at(0).data, batch.at(0).target};
    else
      return {batch.at(0).data, batch.at(0).data};
  }

 private:
  // get_batch() is not const: several threads need several copies, as in torch's loader.
  std::unique_ptr<Dataset> take() const {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return std::make_unique<Dataset>(prototype_);
    std::unique_ptr<Dataset> one = std::move(free_.back());
    free_.pop_back();
    return one;
  }
  void give_back(std::unique_ptr<Dataset> one) const {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(one));
  }

  const Dataset prototype_;
  const int64_t size_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Dataset>> free_;
};

}  // namespace detail

// `dataset` gives samples of a data and a target tensor, or of one tensor, which is then the
// target too. It may be mapped by transforms. Its random transforms draw from the sample's own
// numbers (Source::get). Each thread that loads has a copy of it. Throws Error(invalid_argument)
// if its size is not known, or 0.
template <typename Dataset>
std::shared_ptr<const Source> from_dataset(Dataset dataset) {
  using Given = typename Dataset::BatchType;
  static_assert(!Dataset::is_stateful,
                "from_dataset takes a data set with an index (torch::data::datasets::Dataset). "
                "Derive a trireme::Source from what a stateful one reads");
  if constexpr (requires { typename Given::value_type; })
    static_assert(detail::is_pair_of_tensors<typename Given::value_type> ||
                      detail::is_one_tensor<typename Given::value_type>,
                  "from_dataset takes samples of one or two tensors; derive a trireme::Source for "
                  "others");
  else
    static_assert(detail::is_pair_of_tensors<Given> || detail::is_one_tensor<Given>,
                  "from_dataset takes samples of one or two tensors; derive a trireme::Source for "
                  "others");
  const std::optional<size_t> size = dataset.size();
  if (!size || *size == 0)
    throw Error(ErrorCode::invalid_argument, "data",
                size ? "the data set has no samples" : "the data set does not tell its size",
                "a data set whose size() is at least 1");
  return std::make_shared<detail::DatasetSource<Dataset>>(std::move(dataset),
                                                          static_cast<int64_t>(*size));
}

// A first try that cannot work: the compiler's message says what does.
template <typename Dataset, typename Sampler>
  requires requires { typename std::remove_cvref_t<Sampler>::BatchRequestType; }
std::shared_ptr<const Source> from_dataset(Dataset&&, Sampler&&) {
  static_assert(!sizeof(Dataset),
                "from_dataset takes no sampler: LoaderOptions::shuffle or TrainerOptions::shuffle "
                "says in which order samples come. trireme::make_data_loader(world, dataset, "
                "sampler, batch) takes one.");
  return nullptr;
}

}  // namespace trireme
