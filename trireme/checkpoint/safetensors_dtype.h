// The names that the safetensors format has for Trireme's dtypes.
#pragma once
#include <trireme/plan/tensor_spec.h>
#include <optional>
#include <string_view>
#include <utility>

namespace trireme::checkpoint {

inline constexpr std::pair<plan::DType, std::string_view> kSafetensorsDTypes[] = {
    {plan::DType::float32, "F32"},
    {plan::DType::float64, "F64"},
    {plan::DType::float16, "F16"},
    {plan::DType::bfloat16, "BF16"},
    {plan::DType::int32, "I32"},
    {plan::DType::int64, "I64"},
    {plan::DType::uint8, "U8"},
    {plan::DType::boolean, "BOOL"},
    {plan::DType::int8, "I8"},
    {plan::DType::int16, "I16"},
    {plan::DType::uint16, "U16"},
    {plan::DType::uint32, "U32"},
    {plan::DType::uint64, "U64"},
    {plan::DType::float8_e4m3fn, "F8_E4M3"},
    {plan::DType::float8_e5m2, "F8_E5M2"},
    {plan::DType::float8_e8m0fnu, "F8_E8M0"},
    {plan::DType::complex64, "C64"},
};

// Empty if the format has no name for the type.
constexpr std::string_view safetensors_dtype(plan::DType dtype) {
  for (const auto& [ours, theirs] : kSafetensorsDTypes)
    if (ours == dtype) return theirs;
  return {};
}

constexpr std::optional<plan::DType> dtype_of_safetensors(std::string_view name) {
  for (const auto& [ours, theirs] : kSafetensorsDTypes)
    if (theirs == name) return ours;
  return {};
}

}  // namespace trireme::checkpoint
