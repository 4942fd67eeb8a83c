#include "arrow_values.h"

#include <fmt/format.h>
#include <trireme/records/damage.h>
#include <algorithm>
#include <cstring>
#include <utility>

namespace trireme::records {
namespace {

using Kind = ArrowType::Kind;

template <typename T>
T number_at(const std::byte* data, int64_t at) {
  T number;
  std::memcpy(&number, data + at * static_cast<int64_t>(sizeof number), sizeof number);
  return number;
}

int64_t whole_number_at(plan::DType dtype, const std::byte* data, int64_t at) {
  using plan::DType;
  switch (dtype) {
    case DType::int8: return number_at<int8_t>(data, at);
    case DType::uint8:
    case DType::boolean: return number_at<uint8_t>(data, at);
    case DType::int16: return number_at<int16_t>(data, at);
    case DType::uint16: return number_at<uint16_t>(data, at);
    case DType::int32: return number_at<int32_t>(data, at);
    case DType::uint32: return number_at<uint32_t>(data, at);
    case DType::int64: return number_at<int64_t>(data, at);
    case DType::uint64: return static_cast<int64_t>(number_at<uint64_t>(data, at));
    default: return -1;
  }
}

Damage without_value() {
  return Damage("it has no value (null)", "a value, or the other columns alone",
                ErrorCode::unsupported);
}

Damage wrong_layout() { return Damage("its array has another layout than its type"); }

// What an array of this kind has besides its validity.
int64_t buffers_of(Kind kind) {
  switch (kind) {
    case Kind::fixed_list:
    case Kind::file: return 1;
    case Kind::text:
    case Kind::large_text:
    case Kind::text_view: return 3;
    default: return 2;
  }
}

}  // namespace

ArrowValues::ArrowValues(const ArrowType& type, const ArrowArray& array)
    : type_(&type),
      has_numbers_(type.kind == Kind::number || type.kind == Kind::boolean),
      width_(plan::bytes_of(type.dtype)),
      start_(array.offset),
      end_(array.offset + array.length) {
  const bool is_view = type.kind == Kind::text_view;
  if (array.length < 0 || array.offset < 0 || end_ < start_ ||
      (is_view ? array.n_buffers < 3 : array.n_buffers != buffers_of(type.kind)))
    throw wrong_layout();
  if (array.null_count != 0) valid_ = static_cast<const uint8_t*>(array.buffers[0]);
  const auto buffer = [&](int64_t i) { return static_cast<const std::byte*>(array.buffers[i]); };
  const auto make_inner = [&](const ArrowArray& inner) {
    inner_ = std::make_unique<ArrowValues>(*type.inner, inner);
  };
  switch (type.kind) {
    case Kind::number:
    case Kind::fixed_text: data_ = buffer(1); break;
    case Kind::boolean: {
      const auto* const bits = static_cast<const uint8_t*>(array.buffers[1]);
      booleans_.resize(static_cast<size_t>(end_));
      for (size_t i = static_cast<size_t>(start_); i < booleans_.size(); ++i)
        booleans_[i] = bits[i / 8] >> (i % 8) & 1;
      data_ = reinterpret_cast<const std::byte*>(booleans_.data());
      break;
    }
    case Kind::text:
    case Kind::large_text:
      offsets_ = buffer(1);
      data_ = buffer(2);
      data_bytes_ = array.length == 0 ? 0 : offset_at(end_);
      break;
    case Kind::text_view: {
      data_ = buffer(1);
      const auto count = static_cast<size_t>(array.n_buffers - 3);
      for (size_t i = 0; i < count; ++i)
        buffers_.emplace_back(buffer(static_cast<int64_t>(i) + 2),
                              static_cast<size_t>(number_at<int64_t>(buffer(array.n_buffers - 1),
                                                                     static_cast<int64_t>(i))));
      break;
    }
    case Kind::list:
    case Kind::large_list: offsets_ = buffer(1); [[fallthrough]];
    case Kind::fixed_list:
      if (array.n_children != 1) throw wrong_layout();
      make_inner(*array.children[0]);
      break;
    case Kind::file:
      if (std::cmp_less_equal(array.n_children, type.bytes_member)) throw wrong_layout();
      make_inner(*array.children[type.bytes_member]);
      break;
    case Kind::dictionary:
      if (!array.dictionary) throw wrong_layout();
      data_ = buffer(1);
      make_inner(*array.dictionary);
      break;
  }
}

size_t ArrowValues::read(int64_t row, Field& field, std::span<int64_t> sizes) const {
  const int64_t at = start_ + row;
  require_value(at);
  switch (type_->kind) {
    case Kind::number:
    case Kind::boolean: field.bytes = numbers({at, at + 1}); return 0;
    case Kind::text:
    case Kind::large_text:
    case Kind::text_view:
    case Kind::fixed_text: field.bytes = text(at); return 0;
    case Kind::file: return inner_->read(at, field, sizes);
    case Kind::dictionary: return inner_->read(key_at(at), field, sizes);
    case Kind::list:
    case Kind::large_list:
    case Kind::fixed_list: break;
  }
  const ArrowValues* level = this;
  Range range{at, at + 1};
  size_t dimensions = 0;
  while (level->inner_) {
    if (range.begin < range.end) {
      level->require_values(range);
      const Range first = level->members(range.begin);
      const int64_t size = first.end - first.begin;
      Range all = first;
      for (int64_t i = range.begin + 1; i < range.end; ++i) {
        const Range next = level->members(i);
        if (next.end - next.begin != size || next.begin != all.end)
          throw Damage("the lists in its list have different lengths, so they are no tensor",
                       "lists of one length in a row, or the other columns alone",
                       ErrorCode::unsupported);
        all.end = next.end;
      }
      range = all;
      sizes[dimensions] = size;
    } else {
      range = {level->inner_->start_, level->inner_->start_};
      sizes[dimensions] = level->type_->kind == Kind::fixed_list ? level->type_->size : 0;
    }
    const auto& shape = level->type_->tensor_shape;
    std::ranges::copy(shape, sizes.subspan(dimensions).begin());
    dimensions += std::max<size_t>(1, shape.size());
    level = level->inner_.get();
  }
  level->require_values(range);
  field.bytes = level->numbers(range);
  field.shape = sizes.first(dimensions);
  return dimensions;
}

std::optional<int64_t> ArrowValues::whole_number(int64_t row) const {
  const int64_t at = start_ + row;
  if (!has_value(at)) return std::nullopt;
  return whole_number_at(type_->dtype, data_, at);
}

int64_t ArrowValues::length(int64_t row) const {
  const int64_t at = start_ + row;
  require_value(at);
  switch (type_->kind) {
    case Kind::list:
    case Kind::large_list:
    case Kind::fixed_list: {
      const Range range = members(at);
      return range.end - range.begin;
    }
    case Kind::file: return inner_->length(at);
    case Kind::dictionary: return inner_->length(key_at(at));
    case Kind::number:
    case Kind::boolean: return 1;
    default: return std::ssize(text(at));
  }
}

int64_t ArrowValues::held_bytes() const {
  return std::ssize(booleans_) + (inner_ ? inner_->held_bytes() : 0);
}

int64_t ArrowValues::offset_at(int64_t at) const {
  const bool is_large = type_->kind == Kind::large_text || type_->kind == Kind::large_list;
  return is_large ? number_at<int64_t>(offsets_, at) : number_at<int32_t>(offsets_, at);
}

int64_t ArrowValues::key_at(int64_t at) const {
  const int64_t key = whole_number_at(type_->key, data_, at);
  if (key < 0 || key >= inner_->end_ - inner_->start_)
    throw Damage(fmt::format("its value has the number {} of a dictionary of {}", key,
                             inner_->end_ - inner_->start_));
  return key;
}

std::span<const std::byte> ArrowValues::text(int64_t at) const {
  if (type_->kind == Kind::text_view) return view_text(at);
  if (type_->kind == Kind::fixed_text)
    return {data_ + at * type_->size, static_cast<size_t>(type_->size)};
  const int64_t begin = offset_at(at), end = offset_at(at + 1);
  if (begin < 0 || end < begin || end > data_bytes_)
    throw Damage(
        fmt::format("its text should be the bytes {} to {} of {}", begin, end, data_bytes_));
  return {data_ + begin, static_cast<size_t>(end - begin)};
}

// 16 bytes: the length, and a short text itself, or 4 bytes of it, a buffer and a place.
std::span<const std::byte> ArrowValues::view_text(int64_t at) const {
  constexpr int64_t kViewBytes = 16, kShort = 12;
  const std::byte* const view = data_ + at * kViewBytes;
  const auto bytes = number_at<int32_t>(view, 0);
  if (bytes >= 0 && bytes <= kShort) return {view + 4, static_cast<size_t>(bytes)};
  const auto buffer = number_at<int32_t>(view, 2), begin = number_at<int32_t>(view, 3);
  if (bytes < 0 || buffer < 0 || begin < 0 || std::cmp_greater_equal(buffer, buffers_.size()))
    throw Damage("the place of its text is damaged");
  const auto all = buffers_[static_cast<size_t>(buffer)];
  if (int64_t{begin} + bytes > std::ssize(all)) throw Damage("the place of its text is damaged");
  return all.subspan(static_cast<size_t>(begin), static_cast<size_t>(bytes));
}

std::span<const std::byte> ArrowValues::numbers(Range range) const {
  return {data_ + range.begin * width_, static_cast<size_t>((range.end - range.begin) * width_)};
}

// The members of a list, as places in the buffers of its members.
ArrowValues::Range ArrowValues::members(int64_t at) const {
  const bool is_fixed = type_->kind == Kind::fixed_list;
  const int64_t begin = is_fixed ? at * type_->size : offset_at(at);
  const int64_t end = is_fixed ? begin + type_->size : offset_at(at + 1);
  const int64_t most = inner_->end_ - inner_->start_;
  if (begin < 0 || end < begin || end > most)
    throw Damage(fmt::format("its list should be the members {} to {} of {}", begin, end, most));
  return {inner_->start_ + begin, inner_->start_ + end};
}

void ArrowValues::require_value(int64_t at) const {
  if (!has_value(at)) throw without_value();
}

void ArrowValues::require_values(Range range) const {
  if (!valid_) return;
  for (int64_t at = range.begin; at < range.end; ++at) require_value(at);
}

}  // namespace trireme::records
