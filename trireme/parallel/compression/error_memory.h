// The errors that compression left out of earlier steps, in one flat tensor beside a
// bucket's gradients. There are two: one of the steps that counted, and one of the current
// step, which may not count.
#pragma once
#include <trireme/parallel/compression/compressor.h>

namespace trireme::compression {

class ErrorMemory {
 public:
  explicit ErrorMemory(const CompressedBucket& bucket);
  // Both tensors have the bucket's layout.
  // The errors of earlier steps.
  const at::Tensor& kept() const { return kept_; }
  // The errors of this step; zeros before they are written.
  const at::Tensor& left() const { return left_; }
  void commit() { std::swap(kept_, left_); }
  StateView state() const;  // "error/<parameter>", views of kept().

 private:
  CompressedBucket bucket_;
  at::Tensor kept_, left_;
};

}  // namespace trireme::compression
