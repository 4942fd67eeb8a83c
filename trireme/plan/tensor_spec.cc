#include <trireme/plan/tensor_spec.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <trireme/base/error.h>
#include <array>

namespace trireme::plan {
namespace {

struct DTypeFacts {
  DType dtype;
  std::string_view name;
  int64_t bytes;
};
// The names are PyTorch's.
constexpr auto kDTypes = std::to_array<DTypeFacts>({{DType::float32, "float32", 4},
                                                    {DType::float64, "float64", 8},
                                                    {DType::float16, "float16", 2},
                                                    {DType::bfloat16, "bfloat16", 2},
                                                    {DType::int32, "int32", 4},
                                                    {DType::int64, "int64", 8},
                                                    {DType::uint8, "uint8", 1},
                                                    {DType::boolean, "bool", 1},
                                                    {DType::int8, "int8", 1},
                                                    {DType::int16, "int16", 2},
                                                    {DType::uint16, "uint16", 2},
                                                    {DType::uint32, "uint32", 4},
                                                    {DType::uint64, "uint64", 8},
                                                    {DType::float8_e4m3fn, "float8_e4m3fn", 1},
                                                    {DType::float8_e5m2, "float8_e5m2", 1},
                                                    {DType::float8_e4m3fnuz, "float8_e4m3fnuz", 1},
                                                    {DType::float8_e5m2fnuz, "float8_e5m2fnuz", 1},
                                                    {DType::float8_e8m0fnu, "float8_e8m0fnu", 1},
                                                    {DType::complex32, "complex32", 4},
                                                    {DType::complex64, "complex64", 8},
                                                    {DType::complex128, "complex128", 16}});

const DTypeFacts& facts_of(DType dtype) {
  for (const DTypeFacts& facts : kDTypes) {
    if (facts.dtype == dtype) return facts;
  }
  throw Error(ErrorCode::internal, "plan",
              fmt::format("no dtype has the number {}", static_cast<int>(dtype)));
}

}  // namespace

int64_t bytes_of(DType dtype) { return facts_of(dtype).bytes; }

std::string_view to_string(DType dtype) { return facts_of(dtype).name; }

DType dtype_from_string(std::string_view name) {
  std::array<std::string_view, kDTypes.size()> names;
  for (size_t i = 0; i < kDTypes.size(); ++i) {
    if (kDTypes[i].name == name) return kDTypes[i].dtype;
    names[i] = kDTypes[i].name;
  }
  throw Error(ErrorCode::invalid_argument, "plan", fmt::format("'{}' is not a known dtype", name),
              fmt::format("one of {}", fmt::join(names, ", ")));
}

int64_t TensorSpec::elements() const {
  int64_t product = 1;
  for (const int64_t extent : shape) {
    if (extent < 0 || __builtin_mul_overflow(product, extent, &product)) {
      throw Error(
          ErrorCode::invalid_argument, "plan",
          fmt::format("tensor '{}' cannot have the shape [{}]", name, fmt::join(shape, ", ")));
    }
  }
  return product;
}

std::string TensorSpec::describe() const {
  return fmt::format("{}[{}]", to_string(dtype), fmt::join(shape, ", "));
}

}  // namespace trireme::plan
