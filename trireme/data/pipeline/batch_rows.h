// The memory of a batch, which a pipeline fills row by row.
#pragma once
#include <ATen/core/DimVector.h>
#include <ATen/core/Tensor.h>
#include <trireme/data/batch.h>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace trireme::data {

// The rows of a batch in the order in which they are made. The first one decides about shapes and
// types.
class BatchRows {
 public:
  explicit BatchRows(int64_t most) : most_(most) {}

  // `place` names the sample. Throws Error(invalid_argument) naming it and the first one, if their
  // shapes or types differ; it says that `remedy` helps.
  void begin_row(at::IntArrayRef data, at::ScalarType data_type, at::IntArrayRef target,
                 at::ScalarType target_type, const std::function<std::string()>& place,
                 const char* remedy);
  void* data_row() const { return data_ + static_cast<size_t>(done_) * data_bytes_; }
  void* target_row() const { return target_ + static_cast<size_t>(done_) * target_bytes_; }
  void end_row() { ++done_; }

  // The rows that were made; undefined tensors if there are none.
  Example finish() const;

 private:
  const int64_t most_;
  int64_t done_ = 0;
  Example batch_;
  std::byte *data_ = nullptr, *target_ = nullptr;  // The memory of these tensors.
  at::DimVector data_shape_, target_shape_;
  std::string first_;
  size_t data_bytes_ = 0, target_bytes_ = 0;
};

}  // namespace trireme::data
