// The whole numbers of a field, whatever their type.
#pragma once
#include <trireme/records/record.h>
#include <cstdint>
#include <cstring>
#include <span>

namespace trireme::records {

template <typename T, typename Add>
void for_each_number(std::span<const std::byte> bytes, Add& add) {
  for (size_t at = 0; at + sizeof(T) <= bytes.size(); at += sizeof(T)) {
    T number{};
    std::memcpy(&number, bytes.data() + at, sizeof number);
    add(static_cast<int64_t>(number));
  }
}

// Calls add(int64_t) for each number. Returns false if the field has numbers of another type, or
// of a type that int64 cannot hold.
template <typename Add>
bool for_each_whole_number(const Field& field, Add add) {
  using plan::DType;
  switch (field.dtype) {
    case DType::int64: for_each_number<int64_t>(field.bytes, add); return true;
    case DType::int32: for_each_number<int32_t>(field.bytes, add); return true;
    case DType::int16: for_each_number<int16_t>(field.bytes, add); return true;
    case DType::int8: for_each_number<int8_t>(field.bytes, add); return true;
    case DType::uint32: for_each_number<uint32_t>(field.bytes, add); return true;
    case DType::uint16: for_each_number<uint16_t>(field.bytes, add); return true;
    case DType::uint8:
    case DType::boolean: for_each_number<uint8_t>(field.bytes, add); return true;
    default: return false;
  }
}

}  // namespace trireme::records
