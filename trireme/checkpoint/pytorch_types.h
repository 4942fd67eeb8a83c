// The names of types in PyTorch's files.
#pragma once
#include <trireme/plan/tensor_spec.h>
#include <string_view>
#include <utility>

namespace trireme::checkpoint {

inline constexpr std::pair<std::string_view, plan::DType> kStorages[] = {
    {"FloatStorage", plan::DType::float32},
    {"DoubleStorage", plan::DType::float64},
    {"HalfStorage", plan::DType::float16},
    {"BFloat16Storage", plan::DType::bfloat16},
    {"IntStorage", plan::DType::int32},
    {"LongStorage", plan::DType::int64},
    {"ByteStorage", plan::DType::uint8},
    {"BoolStorage", plan::DType::boolean},
    {"CharStorage", plan::DType::int8},
    {"ShortStorage", plan::DType::int16},
    {"ComplexFloatStorage", plan::DType::complex64},
    {"ComplexDoubleStorage", plan::DType::complex128},
};
// Types without a storage class in Python. A state dict has their storage as bytes, and the tensor
// itself names its type. The archive of a module names the storage as C++ does.
inline constexpr std::pair<std::string_view, plan::DType> kStoragesOfModules[] = {
    {"UInt16Storage", plan::DType::uint16},
    {"UInt32Storage", plan::DType::uint32},
    {"UInt64Storage", plan::DType::uint64},
    {"Float8_e4m3fnStorage", plan::DType::float8_e4m3fn},
    {"Float8_e5m2Storage", plan::DType::float8_e5m2},
    {"Float8_e4m3fnuzStorage", plan::DType::float8_e4m3fnuz},
    {"Float8_e5m2fnuzStorage", plan::DType::float8_e5m2fnuz},
    {"Float8_e8m0fnuStorage", plan::DType::float8_e8m0fnu},
    {"ComplexHalfStorage", plan::DType::complex32},
};
inline constexpr std::string_view kUntypedStorage = "UntypedStorage";

}  // namespace trireme::checkpoint
