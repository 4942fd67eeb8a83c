// The origin of samples. A user's own source implements two methods.
#pragma once
#include <ATen/core/Tensor.h>
#include <trireme/data/image_table.h>
#include <trireme/data/pixels.h>
#include <cstdint>
#include <memory>
#include <vector>

namespace trireme {

struct Example {
  at::Tensor data;    // One sample, without a batch dimension.
  at::Tensor target;  // A scalar (class index, int64) or a tensor of any shape.
};

// Several threads may call get() at once. The same index must give the same example every time.
class Source {
 public:
  virtual ~Source() = default;
  virtual int64_t size() const = 0;
  virtual Example get(int64_t index) const = 0;
  // Returns several samples, at least one, stacked along a new first dimension. Override it if
  // there is a faster way than stacking the results of get(). Throws Error(invalid_argument)
  // naming a sample whose shape differs from the others'.
  virtual Example get_batch(const std::vector<int64_t>& indices) const;
};

// Images as float tensors of shape [channels, height, width] in 0..1 (pixel / scale). Targets are
// int64 scalars.
class ImageSource : public Source {
 public:
  // Throws Error(invalid_argument) if pixels or labels do not fill the stated sizes.
  explicit ImageSource(data::ImageTable table);
  int64_t size() const override;
  Example get(int64_t index) const override;
  Example get_batch(const std::vector<int64_t>& indices) const override;
  const data::ImageTable& table() const { return table_; }

 private:
  data::ImageTable table_;
  data::PixelScale scale_;
  int64_t image_pixels_ = 0;
};

// Tensors held in memory: row i of `data` and of `target` is sample i. The source may or may not
// see a later change of these tensors.
class TensorSource : public Source {
 public:
  // Throws Error(invalid_argument) if their first sizes differ.
  TensorSource(at::Tensor data, at::Tensor target);
  int64_t size() const override;
  Example get(int64_t index) const override;
  Example get_batch(const std::vector<int64_t>& indices) const override;

 private:
  at::Tensor data_, target_;
};

}  // namespace trireme
