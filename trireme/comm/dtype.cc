#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/comm/dtype.h>

namespace trireme {

plan::DType to_plan(at::ScalarType type) {
  switch (type) {
    case at::kFloat: return plan::DType::float32;
    case at::kDouble: return plan::DType::float64;
    case at::kHalf: return plan::DType::float16;
    case at::kBFloat16: return plan::DType::bfloat16;
    case at::kInt: return plan::DType::int32;
    case at::kLong: return plan::DType::int64;
    case at::kByte: return plan::DType::uint8;
    default:
      throw Error(ErrorCode::unsupported, "comm",
                  fmt::format("tensors of type {} are not supported", c10::toString(type)),
                  "float32, float64, float16, bfloat16, int32, int64 or uint8");
  }
}

at::ScalarType to_torch(plan::DType dtype) {
  switch (dtype) {
    case plan::DType::float32: return at::kFloat;
    case plan::DType::float64: return at::kDouble;
    case plan::DType::float16: return at::kHalf;
    case plan::DType::bfloat16: return at::kBFloat16;
    case plan::DType::int32: return at::kInt;
    case plan::DType::int64: return at::kLong;
    case plan::DType::uint8: return at::kByte;
  }
  return at::kFloat;
}

}  // namespace trireme
