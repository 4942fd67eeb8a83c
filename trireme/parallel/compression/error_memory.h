// What compression left out of earlier steps, in one flat tensor beside a bucket's gradients.
#pragma once
#include <trireme/parallel/compression/compressor.h>

namespace trireme::compression {

class ErrorMemory {
 public:
  explicit ErrorMemory(const CompressedBucket& bucket);
  const at::Tensor& flat() const { return flat_; }  // In the bucket's layout.
  std::vector<NamedTensor> state() const;           // "error/<parameter>", views of it.

 private:
  CompressedBucket bucket_;
  at::Tensor flat_;
};

}  // namespace trireme::compression
