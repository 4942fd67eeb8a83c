// Whether a gradient has a NaN or an infinite value.
#pragma once
#include <ATen/core/Tensor.h>

namespace trireme {

// A loss that is NaN makes whole gradients so. Of a large one the first values are read, because
// all of them would be one more pass over memory in each step.
inline constexpr int64_t kMostValuesLookedAt = int64_t{1} << 18;

// Reads each of these values once. With a gradient on a device it reads all, and waits for the
// device's work.
bool is_finite_gradient(const at::Tensor& gradient);

}  // namespace trireme
