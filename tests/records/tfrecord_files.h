// TFRecord files for tests.
#pragma once
#include <trireme/records/crc32c.h>

#include "files.h"

namespace trireme::records::tfrecord_tests {

inline std::span<const std::byte> as_bytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

inline std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}

inline std::string message(int field, const std::string& content) {
  return varint(static_cast<uint64_t>(field) << 3 | 2) + varint(content.size()) + content;
}

inline std::string feature(const std::string& name, int kind, const std::string& list) {
  return message(1, message(1, name) + message(2, message(kind, list)));
}

inline std::string record_of(const std::string& bytes) {
  const std::string length = bytes_of_number<uint64_t>(bytes.size());
  return length + bytes_of_number(masked_crc(crc32c(as_bytes(length)))) + bytes +
         bytes_of_number(masked_crc(crc32c(as_bytes(bytes))));
}

inline std::string example(const std::string& features) { return record_of(message(1, features)); }

inline std::string small_file() {
  const std::string floats = bytes_of_number(1.5F) + bytes_of_number(-2.5F);
  return example(feature("image", 1, message(1, "jpeg")) +
                 feature("label", 3, message(1, "\x07")) + feature("box", 2, message(1, floats))) +
         // Numbers that are not packed, and a negative one.
         example(feature("image", 1, message(1, "png!")) +
                 feature("label", 3, "\x08" + varint(static_cast<uint64_t>(-3)) + "\x08\x05") +
                 feature("box", 2, "\x0d" + bytes_of_number(4.0F)) +
                 feature("words", 1, message(1, "one") + message(1, "two")) +
                 message(1, message(1, "nothing") + message(2, "")));
}

}  // namespace trireme::records::tfrecord_tests
