#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <trireme/parallel/compression/error_memory.h>

namespace trireme::compression {

ErrorMemory::ErrorMemory(const CompressedBucket& bucket)
    : bucket_(bucket),
      kept_(at::zeros({bucket.elements}, at::TensorOptions().dtype(bucket.dtype))),
      left_(at::zeros_like(kept_)) {}

StateView ErrorMemory::state() const {
  StateView parts;
  for (size_t i = 0; i < bucket_.parameters.size(); ++i) {
    const plan::TensorSpec& parameter = bucket_.parameters[i];
    parts.push_back(
        whole("error/" + parameter.name,
              kept_.narrow(0, bucket_.offsets[i], parameter.elements()).view(parameter.shape),
              StateKind::residual));
  }
  return parts;
}

}  // namespace trireme::compression
