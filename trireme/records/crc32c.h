// CRC-32C (Castagnoli), and the form in which TFRecord files have it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace trireme::records {

// By the processor's instruction, if it has one.
uint32_t crc32c(std::span<const std::byte> bytes);
// The same by a table, as other processors compute it.
uint32_t crc32c_by_table(std::span<const std::byte> bytes);

// TensorFlow stores this, because the CRC of bytes that contain their CRC says little.
constexpr uint32_t masked_crc(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xa282ead8U; }

}  // namespace trireme::records
