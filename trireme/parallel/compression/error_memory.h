// What compression left out of earlier steps, in one flat tensor beside a bucket's gradients: of
// the steps that counted, and of the one under way, which may not count.
#pragma once
#include <trireme/parallel/compression/compressor.h>

namespace trireme::compression {

class ErrorMemory {
 public:
  explicit ErrorMemory(const CompressedBucket& bucket);
  // Both in the bucket's layout.
  const at::Tensor& kept() const { return kept_; }  // Of earlier steps.
  const at::Tensor& left() const { return left_; }  // Of this one; zeros before it is written.
  void commit() { std::swap(kept_, left_); }
  std::vector<NamedTensor> state() const;  // "error/<parameter>", views of kept().

 private:
  CompressedBucket bucket_;
  at::Tensor kept_, left_;
};

}  // namespace trireme::compression
