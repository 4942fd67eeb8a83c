// Conversions between the element types of torch and those of plans.
#pragma once
#include <c10/core/ScalarType.h>
#include <trireme/plan/tensor_spec.h>
#include <optional>

namespace trireme {

// The types that groups carry and plans work on. Throws Error(unsupported) naming any other.
plan::DType to_plan(at::ScalarType type);
// The types that checkpoints hold, which are more than groups carry. Throws likewise.
plan::DType to_stored(at::ScalarType type);
at::ScalarType to_torch(plan::DType dtype);  // The inverse of to_plan() and to_stored().
inline std::optional<at::ScalarType> to_torch(std::optional<plan::DType> dtype) {
  return dtype ? std::optional(to_torch(*dtype)) : std::nullopt;
}

}  // namespace trireme
