#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <trireme/base/error.h>
#include <trireme/data/pipeline/batch_rows.h>

namespace trireme::data {

void BatchRows::begin_row(std::vector<int64_t> data, at::ScalarType data_type,
                          std::vector<int64_t> target, at::ScalarType target_type,
                          const std::function<std::string()>& place, const char* remedy) {
  if (!batch_.data.defined()) {
    data_shape_ = data, target_shape_ = target;
    first_ = place();
    data.insert(data.begin(), most_);
    target.insert(target.begin(), most_);
    batch_.data = at::empty(data, data_type);
    batch_.target = at::empty(target, target_type);
    data_bytes_ = batch_.data.nbytes() / static_cast<size_t>(most_);
    target_bytes_ = batch_.target.nbytes() / static_cast<size_t>(most_);
    return;
  }
  if (data == data_shape_ && target == target_shape_ && data_type == batch_.data.scalar_type() &&
      target_type == batch_.target.scalar_type())
    return;
  throw Error(
      ErrorCode::invalid_argument, "data",
      fmt::format("{} has data {} [{}] and a target {} [{}], but {} has {} [{}] and {} [{}]",
                  place(), c10::toString(data_type), fmt::join(data, ", "),
                  c10::toString(target_type), fmt::join(target, ", "), first_,
                  c10::toString(batch_.data.scalar_type()), fmt::join(data_shape_, ", "),
                  c10::toString(batch_.target.scalar_type()), fmt::join(target_shape_, ", ")),
      remedy);
}

Example BatchRows::finish() const {
  if (!batch_.data.defined() || done_ == most_) return batch_;
  return {batch_.data.narrow(0, 0, done_), batch_.target.narrow(0, 0, done_)};
}

}  // namespace trireme::data
