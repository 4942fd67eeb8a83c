// Whether a gradient has a NaN or an infinite value.
#pragma once
#include <ATen/core/Tensor.h>

namespace trireme {

// Reads all values once. With a gradient on a device it waits for the device's work.
bool is_finite_gradient(const at::Tensor& gradient);

}  // namespace trireme
