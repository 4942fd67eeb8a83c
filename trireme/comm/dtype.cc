#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/comm/dtype.h>
#include <optional>
#include <span>
#include <utility>

namespace trireme {
namespace {

using plan::DType;

// The first kCarried of them are what groups carry.
constexpr std::pair<at::ScalarType, DType> kTypes[] = {
    {at::kFloat, DType::float32},
    {at::kDouble, DType::float64},
    {at::kHalf, DType::float16},
    {at::kBFloat16, DType::bfloat16},
    {at::kInt, DType::int32},
    {at::kLong, DType::int64},
    {at::kByte, DType::uint8},
    {at::kBool, DType::boolean},
    {at::kChar, DType::int8},
    {at::kShort, DType::int16},
    {at::kUInt16, DType::uint16},
    {at::kUInt32, DType::uint32},
    {at::kUInt64, DType::uint64},
    {at::kFloat8_e4m3fn, DType::float8_e4m3fn},
    {at::kFloat8_e5m2, DType::float8_e5m2},
    {at::kFloat8_e4m3fnuz, DType::float8_e4m3fnuz},
    {at::kFloat8_e5m2fnuz, DType::float8_e5m2fnuz},
    {at::kFloat8_e8m0fnu, DType::float8_e8m0fnu},
    {at::kComplexHalf, DType::complex32},
    {at::kComplexFloat, DType::complex64},
    {at::kComplexDouble, DType::complex128},
};
constexpr size_t kCarried = 7;

std::optional<DType> among(at::ScalarType type, size_t count) {
  for (const auto& [theirs, ours] : std::span(kTypes).first(count))
    if (theirs == type) return ours;
  return std::nullopt;
}

}  // namespace

DType to_plan(at::ScalarType type) {
  if (const auto found = among(type, kCarried)) return *found;
  throw Error(ErrorCode::unsupported, "comm",
              fmt::format("tensors of type {} are not supported", c10::toString(type)),
              "float32, float64, float16, bfloat16, int32, int64 or uint8");
}

DType to_stored(at::ScalarType type) {
  if (const auto found = among(type, std::size(kTypes))) return *found;
  throw Error(
      ErrorCode::unsupported, "comm",
      fmt::format("tensors of type {} are not stored", c10::toString(type)),
      "bool, integers of 8 to 64 bits, bfloat16, floating-point numbers of 8 to 64 bits, or "
      "complex numbers");
}

at::ScalarType to_torch(DType dtype) {
  for (const auto& [theirs, ours] : kTypes)
    if (ours == dtype) return theirs;
  return at::kFloat;
}

}  // namespace trireme
