#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/data/pipeline/numbers.h>
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

namespace trireme::data {
namespace {

// Also refuses numbers that no int64 can hold.
void require_whole(const records::Field& field, double number) {
  constexpr double kMost = 9007199254740992;  // 2^53
  if (std::abs(number) <= kMost && number == std::floor(number)) return;
  throw Error(
      ErrorCode::invalid_argument, "data",
      fmt::format("the field {} has the number {}, where a whole one must be", field.name, number),
      "whole numbers for tokens and classes");
}

template <typename From, typename To>
void copy_as(const records::Field& field, To* to) {
  const size_t count = field.bytes.size() / sizeof(From);
  const std::byte* from = field.bytes.data();
  for (size_t i = 0; i < count; ++i) {
    From number;  // The bytes of a record need not be aligned.
    std::memcpy(&number, from + i * sizeof(From), sizeof(From));
    if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>)
      require_whole(field, number);
    to[i] = static_cast<To>(number);
  }
}

template <typename To>
void copy_any(const records::Field& field, To* to) {
  using plan::DType;
  switch (field.dtype) {
    case DType::float32: return copy_as<float>(field, to);
    case DType::float64: return copy_as<double>(field, to);
    case DType::int8: return copy_as<int8_t>(field, to);
    case DType::uint8:
    case DType::boolean: return copy_as<uint8_t>(field, to);
    case DType::int16: return copy_as<int16_t>(field, to);
    case DType::uint16: return copy_as<uint16_t>(field, to);
    case DType::int32: return copy_as<int32_t>(field, to);
    case DType::uint32: return copy_as<uint32_t>(field, to);
    case DType::int64: return copy_as<int64_t>(field, to);
    case DType::uint64: return copy_as<uint64_t>(field, to);
    default: break;
  }
  throw Error(ErrorCode::unsupported, "data",
              fmt::format("the field {} is of {}", field.name, plan::to_string(field.dtype)),
              "whole numbers, float32 or float64");
}

}  // namespace

bool is_whole(plan::DType dtype) {
  using plan::DType;
  switch (dtype) {
    case DType::int8:
    case DType::uint8:
    case DType::boolean:
    case DType::int16:
    case DType::uint16:
    case DType::int32:
    case DType::uint32:
    case DType::int64:
    case DType::uint64: return true;
    default: return false;
  }
}

int64_t count_of(const records::Field& field) {
  int64_t count = 1;
  for (const int64_t size : field.shape) count *= size;
  return count;
}

namespace {

// The caller has made room for as many numbers as the shape says.
void require_numbers(const records::Field& field) {
  const auto bytes = static_cast<uint64_t>(count_of(field) * plan::bytes_of(field.dtype));
  if (field.encoded || field.bytes.size() != bytes)
    throw Error(
        ErrorCode::corrupt, "data",
        fmt::format("the field {} has {} bytes, which are not {} numbers of {}", field.name,
                    field.bytes.size(), count_of(field), plan::to_string(field.dtype)));
}

}  // namespace

void copy_numbers(const records::Field& field, float* to) {
  require_numbers(field);
  copy_any(field, to);
}
void copy_numbers(const records::Field& field, int64_t* to) {
  require_numbers(field);
  copy_any(field, to);
}

void check_tokens(std::span<const int64_t> tokens, int64_t classes,
                  const std::function<std::string()>& place) {
  // A token below 0 becomes a large number.
  const uint64_t most =
      classes > 0 ? static_cast<uint64_t>(classes - 1) : std::numeric_limits<int64_t>::max();
  const auto is_right = [&](int64_t token) { return static_cast<uint64_t>(token) <= most; };
  const auto wrong = std::ranges::find_if_not(tokens, is_right);
  if (wrong == tokens.end()) return;
  const std::string outside = fmt::format("outside 0..{} (data.classes={})", classes - 1, classes);
  throw Error(
      ErrorCode::invalid_argument, "data",
      fmt::format("{}: the token is {}, {}", place(), *wrong, *wrong < 0 ? "below 0" : outside),
      "tokens from 0 on, and the right data.classes");
}

}  // namespace trireme::data
