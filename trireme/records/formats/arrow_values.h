// The values of a column in the memory that Arrow has laid out. No size in that memory is trusted:
// a mapped file may change while it is read.
#pragma once
#include <trireme/records/arrow/c_data.h>
#include <trireme/records/record.h>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "arrow_type.h"

namespace trireme::records {

// A part of a column. It views the array, which must live longer. Any number of threads.
class ArrowValues {
 public:
  // The array was validated: its buffers are as long as its length needs, and its last offset is
  // inside of them. Throws Damage if it has another layout than the type.
  ArrowValues(const ArrowType& type, const ArrowArray& array);

  // Fills bytes and shape of a field whose name and type are there. The shape's memory is
  // `sizes`, which has room for the dimensions of the type; it returns what it used. Throws Damage
  // if the row has no value, or a damaged one.
  size_t read(int64_t row, Field& field, std::span<int64_t> sizes) const;
  // The same for a column of single numbers, without a call; false if it needs the other way.
  bool read_number(int64_t row, Field& field) const {
    const int64_t at = start_ + row;
    if (!has_numbers_ || !has_value(at)) return false;
    field.bytes = {data_ + at * width_, static_cast<size_t>(width_)};
    return true;
  }
  // One whole number, or nothing if the row has no value.
  std::optional<int64_t> whole_number(int64_t row) const;
  // The elements of a list, or the bytes of a text.
  int64_t length(int64_t row) const;
  // Memory of its own.
  int64_t held_bytes() const;

 private:
  struct Range {
    int64_t begin = 0, end = 0;
  };
  std::span<const std::byte> text(int64_t at) const;
  std::span<const std::byte> view_text(int64_t at) const;
  std::span<const std::byte> numbers(Range range) const;
  Range members(int64_t at) const;
  int64_t offset_at(int64_t at) const;
  int64_t key_at(int64_t at) const;
  bool has_value(int64_t at) const { return !valid_ || (valid_[at / 8] >> (at % 8) & 1) != 0; }
  void require_value(int64_t at) const;
  void require_values(Range range) const;

  const ArrowType* type_;
  bool has_numbers_;
  int64_t width_;        // Of a number.
  int64_t start_, end_;  // Places in the buffers: those of the rows.
  const uint8_t* valid_ = nullptr;
  const std::byte* offsets_ = nullptr;
  const std::byte* data_ = nullptr;
  int64_t data_bytes_ = 0;
  std::vector<uint8_t> booleans_;                    // A byte for each.
  std::vector<std::span<const std::byte>> buffers_;  // Of texts that are views.
  std::unique_ptr<ArrowValues> inner_;
};

}  // namespace trireme::records
