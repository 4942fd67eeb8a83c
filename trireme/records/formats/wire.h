// Protocol buffers on the wire, as far as tf.train.Example needs them.
#pragma once
#include <trireme/records/damage.h>
#include <cstddef>
#include <cstdint>
#include <span>

namespace trireme::records {

// One field of a message.
struct WireField {
  uint64_t number = 0;
  // Of the wire types, Example has the varint (0), the length (2) and the 4 bytes (5).
  int type = 0;
  uint64_t value = 0;                // Of a varint.
  std::span<const std::byte> bytes;  // Of a length, or of 4 or 8 bytes.
};

// The fields of a message, from front to back.
class WireReader {
 public:
  explicit WireReader(std::span<const std::byte> message) : left_(message) {}
  bool is_at_end() const { return left_.empty(); }
  // Throws Damage if the message is cut.
  WireField next() {
    WireField field;
    const uint64_t tag = varint();
    field.number = tag >> 3;
    field.type = static_cast<int>(tag & 7);
    switch (field.type) {
      case 0: field.value = varint(); break;
      case 1: field.bytes = take(8); break;
      case 2: field.bytes = take(varint()); break;
      case 5: field.bytes = take(4); break;
      default: throw Damage("it is no tf.train.Example: a field has an unknown type of the wire");
    }
    return field;
  }
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 70 && !left_.empty(); shift += 7) {
      const auto byte = std::to_integer<uint64_t>(left_.front());
      left_ = left_.subspan(1);
      if (shift < 64) value |= (byte & 0x7f) << shift;
      if ((byte & 0x80) == 0) return value;
    }
    throw Damage("it is no tf.train.Example: a number is cut");
  }

 private:
  std::span<const std::byte> take(uint64_t bytes) {
    if (bytes > left_.size()) throw Damage("it is no tf.train.Example: a field is cut");
    const auto taken = left_.first(bytes);
    left_ = left_.subspan(bytes);
    return taken;
  }

  std::span<const std::byte> left_;
};

}  // namespace trireme::records
