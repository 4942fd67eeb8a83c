#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <trireme/base/error.h>
#include <trireme/data/pipeline/batch_rows.h>

namespace trireme::data {

void BatchRows::begin_row(at::IntArrayRef data, at::ScalarType data_type, at::IntArrayRef target,
                          at::ScalarType target_type, const std::function<std::string()>& place,
                          const char* remedy) {
  if (!batch_.data.defined()) {
    data_shape_.assign(data.begin(), data.end());
    target_shape_.assign(target.begin(), target.end());
    first_ = place();
    const auto of_all = [&](at::DimVector shape) {
      shape.insert(shape.begin(), most_);
      return shape;
    };
    batch_.data = at::empty(of_all(data_shape_), data_type);
    batch_.target = at::empty(of_all(target_shape_), target_type);
    data_ = static_cast<std::byte*>(batch_.data.mutable_data_ptr());
    target_ = static_cast<std::byte*>(batch_.target.mutable_data_ptr());
    data_bytes_ = batch_.data.nbytes() / static_cast<size_t>(most_);
    target_bytes_ = batch_.target.nbytes() / static_cast<size_t>(most_);
    return;
  }
  if (data == at::IntArrayRef(data_shape_) && target == at::IntArrayRef(target_shape_) &&
      data_type == batch_.data.scalar_type() && target_type == batch_.target.scalar_type())
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
