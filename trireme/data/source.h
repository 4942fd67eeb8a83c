// Where samples come from. A user's own source has two methods.
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

// Must allow get() from several threads at once, and give the same example for the same index every
// time.
class Source {
 public:
  virtual ~Source() = default;
  virtual int64_t size() const = 0;
  virtual Example get(int64_t index) const = 0;
  // Several samples, at least one, stacked along a new first dimension. Override it where that is
  // faster than stacking get()'s results. Throws Error(invalid_argument) naming a sample whose
  // shape differs from the others'.
  virtual Example get_batch(const std::vector<int64_t>& indices) const;
};

// Images as float tensors of shape [channels, height, width] in 0..1 (pixel / scale), targets int64
// scalars.
class ImageSource : public Source {
 public:
  explicit ImageSource(data::ImageTable table);  // Throws Error(invalid_argument) if pixels or
                                                 // labels do not fill the stated sizes.
  int64_t size() const override;
  Example get(int64_t index) const override;
  Example get_batch(const std::vector<int64_t>& indices) const override;
  const data::ImageTable& table() const { return table_; }

 private:
  data::ImageTable table_;
  data::PixelScale scale_;
  int64_t image_pixels_ = 0;
};

// Tensors held in memory: row i of `data` and of `target` is sample i. A later change of the
// tensors given may or may not be seen.
class TensorSource : public Source {
 public:
  TensorSource(at::Tensor data,
               at::Tensor target);  // Throws Error(invalid_argument) if their first sizes differ.
  int64_t size() const override;
  Example get(int64_t index) const override;
  Example get_batch(const std::vector<int64_t>& indices) const override;

 private:
  at::Tensor data_, target_;
};

}  // namespace trireme
