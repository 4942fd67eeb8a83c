// Where samples come from. A user's own source has two methods.
#pragma once
#include <ATen/core/Tensor.h>
#include <cstdint>
#include <memory>
#include <trireme/data/image_table.h>
#include <vector>

namespace trireme {

struct Example {
  at::Tensor data;    // One sample, without a batch dimension.
  at::Tensor target;  // A scalar (class index, int64) or a tensor of any shape.
};

// Must allow get() from several threads at once, and give the same example for the same index every time.
class Source {
 public:
  virtual ~Source() = default;
  virtual int64_t size() const = 0;
  virtual Example get(int64_t index) const = 0;
  // Several samples stacked along a new first dimension. Override it where that is faster than stacking get()'s results.
  virtual Example get_batch(const std::vector<int64_t>& indices) const;
};

// Images as float tensors of shape [channels, height, width] in 0..1 (pixel / scale), targets int64 scalars.
class ImageSource : public Source {
 public:
  explicit ImageSource(data::ImageTable table);
  int64_t size() const override;
  Example get(int64_t index) const override;
  Example get_batch(const std::vector<int64_t>& indices) const override;
  const data::ImageTable& table() const { return table_; }

 private:
  data::ImageTable table_;
};

// Tensors held in memory: row i of `data` and of `target` is sample i.
class TensorSource : public Source {
 public:
  TensorSource(at::Tensor data, at::Tensor target);  // Throws Error(invalid_argument) if their first sizes differ.
  int64_t size() const override;
  Example get(int64_t index) const override;
  Example get_batch(const std::vector<int64_t>& indices) const override;

 private:
  at::Tensor data_, target_;
};

}  // namespace trireme
