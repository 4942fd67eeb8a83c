// The members of a zip file, as far as NumPy writes it: stored or deflated, with zip64.
#pragma once
#include <trireme/records/unpack.h>
#include <string>
#include <vector>

namespace trireme::records {

struct ZipMember {
  std::string name;
  bool is_deflated = false;
  uint32_t crc = 0;
  std::span<const std::byte> packed;  // The bytes in the file.
  uint64_t bytes = 0;                 // After they were unpacked.
};

// Throws Damage: corrupt if a structure of the file is damaged or cut, or if members overlap;
// unsupported for encryption and other methods.
std::vector<ZipMember> members_of_zip(std::span<const std::byte> file);
// Compares the size with the limits first; their memory is what the file's other members have
// left. Throws Damage, also if the CRC is wrong.
std::shared_ptr<const Block> inflate_member(const ZipMember& member, const UnpackLimits& limits);
// The CRC-32 of zip. It differs from CRC-32C.
uint32_t crc32_of(std::span<const std::byte> bytes);

}  // namespace trireme::records
