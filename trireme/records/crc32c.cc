#include <trireme/records/crc32c.h>

#include <array>
#include <cstring>
#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace trireme::records {
namespace {

// Eight bytes at a time: table k has the CRC of a byte that k zeros follow.
struct CrcTables {
  std::array<std::array<uint32_t, 256>, 8> at{};
};

constexpr CrcTables make_crc_tables() {
  CrcTables tables;
  constexpr uint32_t kPolynomial = 0x82f63b78U;  // Reflected.
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    tables.at[0][byte] = crc;
  }
  for (size_t k = 1; k < 8; ++k)
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t before = tables.at[k - 1][byte];
      tables.at[k][byte] = (before >> 8) ^ tables.at[0][before & 0xff];
    }
  return tables;
}

constexpr CrcTables kCrcTables = make_crc_tables();

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t
crc32c_by_instruction(std::span<const std::byte> bytes) {
  uint64_t crc = 0xffffffffU;
  const std::byte* at = bytes.data();
  size_t left = bytes.size();
  for (; left >= 8; left -= 8, at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, at, sizeof word);
    crc = _mm_crc32_u64(crc, word);
  }
  auto short_crc = static_cast<uint32_t>(crc);
  for (; left > 0; --left, ++at)
    short_crc = _mm_crc32_u8(short_crc, std::to_integer<uint8_t>(*at));
  return ~short_crc;
}
#endif

}  // namespace

uint32_t crc32c_by_table(std::span<const std::byte> bytes) {
  const auto& tables = kCrcTables.at;
  uint32_t crc = 0xffffffffU;
  const std::byte* at = bytes.data();
  size_t left = bytes.size();
  for (; left >= 8; left -= 8, at += 8) {
    const auto byte = [&](size_t i) { return std::to_integer<uint32_t>(at[i]); };
    crc ^= byte(0) | byte(1) << 8 | byte(2) << 16 | byte(3) << 24;
    crc = tables[7][crc & 0xff] ^ tables[6][crc >> 8 & 0xff] ^ tables[5][crc >> 16 & 0xff] ^
          tables[4][crc >> 24] ^ tables[3][byte(4)] ^ tables[2][byte(5)] ^ tables[1][byte(6)] ^
          tables[0][byte(7)];
  }
  for (; left > 0; --left, ++at)
    crc = (crc >> 8) ^ tables[0][(crc ^ std::to_integer<uint32_t>(*at)) & 0xff];
  return ~crc;
}

uint32_t crc32c(std::span<const std::byte> bytes) {
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2");
  if (has_instruction) return crc32c_by_instruction(bytes);
#endif
  return crc32c_by_table(bytes);
}

}  // namespace trireme::records
