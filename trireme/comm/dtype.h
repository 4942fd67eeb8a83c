// Conversions between the element types of torch and those of plans.
#pragma once
#include <c10/core/ScalarType.h>
#include <trireme/plan/tensor_spec.h>

namespace trireme {

// Throws Error(unsupported) naming the type if plans do not know it.
plan::DType to_plan(at::ScalarType type);
at::ScalarType to_torch(plan::DType dtype);

}  // namespace trireme
