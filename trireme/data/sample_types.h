// The types that the tensors of a sample may have in caches and on their way from a data service.
#pragma once
#include <c10/core/ScalarType.h>

namespace trireme::data {

inline constexpr at::ScalarType kSampleTypes[] = {
    at::kByte, at::kChar, at::kShort,    at::kInt,    at::kLong,         at::kFloat,
    at::kHalf, at::kBool, at::kBFloat16, at::kDouble, at::kComplexFloat, at::kComplexDouble};

}  // namespace trireme::data
