// Whether a gradient has a NaN or an infinite value.
#pragma once
#include <ATen/core/Tensor.h>
#include <cstdint>
#include <limits>

namespace trireme {

// Reads each value once, or only the first `most` where it can. With a gradient on a device it
// reads all, and waits for the device's work.
bool is_finite_gradient(const at::Tensor& gradient,
                        int64_t most = std::numeric_limits<int64_t>::max());

}  // namespace trireme
