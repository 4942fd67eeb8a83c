// TFRecord framing: how a TensorBoard event file divides its bytes into records.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace trireme::monitor {

// CRC-32C (Castagnoli polynomial, RFC 3720 appendix B.4). Its value for "123456789" is 0xe3069283.
uint32_t crc32c(std::string_view bytes);
// The form in which TFRecord stores a checksum: rotated and offset. A plain checksum of data that
// contains its own checksum would be weak.
uint32_t masked_crc32c(std::string_view bytes);
// One record: the length (8 bytes, little endian), its checksum, the data, its checksum.
std::string tfrecord(std::string_view data);

}  // namespace trireme::monitor
