#include <fmt/format.h>
#include <trireme/checkpoint/tensor_file.h>
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <unordered_map>

namespace trireme::checkpoint {
namespace {

template <typename T>
T element(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

double from_half(uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const double sign = bits >> 15 != 0 ? -1 : 1;
  if (exponent == 31) return fraction == 0 ? sign * INFINITY : NAN;
  return sign *
         (exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25));
}

// Reads a float8 with four exponent bits and three fraction bits. It has no infinity, and one NaN
// of either sign.
double from_e4m3fn(uint8_t bits) {
  const int exponent = bits >> 3 & 15, fraction = bits & 7;
  const double sign = bits >> 7 != 0 ? -1 : 1;
  if (exponent == 15 && fraction == 7) return NAN;
  return sign *
         (exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(8 + fraction, exponent - 10));
}

// The other float8 types have no infinity and no negative zero; their NaN has the bits of -0.
double from_fnuz(uint8_t bits, int fraction_bits, int bias) {
  if (bits == 0x80) return NAN;
  const int exponent = (bits & 127) >> fraction_bits, fraction = bits & ((1 << fraction_bits) - 1);
  const double sign = bits >> 7 != 0 ? -1 : 1;
  const int whole = exponent == 0 ? fraction : fraction + (1 << fraction_bits);
  return sign * std::ldexp(whole, std::max(exponent, 1) - bias - fraction_bits);
}

// The type of the two parts of a complex number; others have one part.
plan::DType part_type(plan::DType dtype) {
  if (dtype == plan::DType::complex32) return plan::DType::float16;
  if (dtype == plan::DType::complex64) return plan::DType::float32;
  if (dtype == plan::DType::complex128) return plan::DType::float64;
  return dtype;
}

double value_of(plan::DType dtype, const std::byte* bytes) {
  switch (dtype) {
    case plan::DType::float32: return element<float>(bytes);
    case plan::DType::float64: return element<double>(bytes);
    case plan::DType::float16: return from_half(element<uint16_t>(bytes));
    case plan::DType::bfloat16:
      return std::bit_cast<float>(static_cast<uint32_t>(element<uint16_t>(bytes)) << 16);
    case plan::DType::int32: return element<int32_t>(bytes);
    case plan::DType::int64: return static_cast<double>(element<int64_t>(bytes));
    case plan::DType::uint8:
    case plan::DType::boolean: return element<uint8_t>(bytes);
    case plan::DType::int8: return element<int8_t>(bytes);
    case plan::DType::int16: return element<int16_t>(bytes);
    case plan::DType::uint16: return element<uint16_t>(bytes);
    case plan::DType::uint32: return element<uint32_t>(bytes);
    case plan::DType::uint64: return static_cast<double>(element<uint64_t>(bytes));
    case plan::DType::float8_e4m3fn: return from_e4m3fn(element<uint8_t>(bytes));
    // This type is the upper half of a float16.
    case plan::DType::float8_e5m2:
      return from_half(static_cast<uint16_t>(element<uint8_t>(bytes) << 8));
    case plan::DType::float8_e4m3fnuz: return from_fnuz(element<uint8_t>(bytes), 3, 8);
    case plan::DType::float8_e5m2fnuz: return from_fnuz(element<uint8_t>(bytes), 2, 16);
    // This type is a power of two.
    case plan::DType::float8_e8m0fnu:
      return element<uint8_t>(bytes) == 255 ? NAN : std::ldexp(1.0, element<uint8_t>(bytes) - 127);
    case plan::DType::complex32:
    case plan::DType::complex64:
    case plan::DType::complex128: break;  // They are compared part by part.
  }
  return NAN;
}

// Returns a sentence about the elements that differ; empty if there are none.
std::string largest_difference(plan::DType whole_type, std::span<const std::byte> a,
                               std::span<const std::byte> b) {
  if (std::equal(a.begin(), a.end(), b.begin(), b.end())) return {};
  const plan::DType dtype = part_type(whole_type);
  const auto width = static_cast<size_t>(plan::bytes_of(whole_type)),
             part = static_cast<size_t>(plan::bytes_of(dtype));
  double largest = 0;
  size_t differing = 0, nans = 0;
  for (size_t element = 0; element < a.size(); element += width) {
    bool differs = false, is_nan = false;
    for (size_t at = element; at < element + width; at += part) {
      const double x = value_of(dtype, &a[at]), y = value_of(dtype, &b[at]);
      if (std::isnan(x) && std::isnan(y)) continue;
      if (x == y && std::memcmp(&a[at], &b[at], part) == 0) continue;
      differs = true;
      if (std::isnan(x) || std::isnan(y))
        is_nan = true;
      else if (x != y)
        largest = std::max(largest, std::abs(x - y));
    }
    differing += differs ? 1 : 0;
    nans += is_nan ? 1 : 0;
  }
  if (differing == 0) return {};
  return fmt::format("{} of {} elements differ, by {:.6g} at most{}", differing, a.size() / width,
                     largest,
                     nans > 0 ? fmt::format(", {} of them are NaN on one side", nans) : "");
}

}  // namespace

std::vector<std::string> differences(const TensorFile& a, const TensorFile& b) {
  std::unordered_map<std::string, const StoredTensor*> others;
  const std::vector<StoredTensor> all_of_a = all_tensors(a), all_of_b = all_tensors(b);
  for (const StoredTensor& tensor : all_of_b) others.emplace(tensor.spec.name, &tensor);
  std::vector<std::string> lines;
  std::vector<std::byte> memory_of_a, memory_of_b;
  for (const StoredTensor& tensor : all_of_a) {
    const auto found = others.find(tensor.spec.name);
    if (found == others.end()) {
      lines.push_back(fmt::format("{}: only in the first", tensor.spec.name));
      continue;
    }
    const StoredTensor& other = *found->second;
    others.erase(found);
    if (tensor.spec.shape != other.spec.shape || tensor.spec.dtype != other.spec.dtype)
      lines.push_back(fmt::format("{}: {} and {}", tensor.spec.name, tensor.spec.describe(),
                                  other.spec.describe()));
    else if (const std::string largest = largest_difference(
                 tensor.spec.dtype, assemble(tensor, memory_of_a), assemble(other, memory_of_b));
             !largest.empty())
      lines.push_back(fmt::format("{}: {}", tensor.spec.name, largest));
  }
  for (const StoredTensor& tensor : all_of_b)
    if (others.contains(tensor.spec.name))
      lines.push_back(fmt::format("{}: only in the second", tensor.spec.name));
  return lines;
}

}  // namespace trireme::checkpoint
