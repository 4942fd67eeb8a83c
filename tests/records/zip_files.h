// Zip files for tests.
#pragma once
#include <zlib.h>

#include "files.h"

namespace trireme::records {

// A zip file as NumPy writes it, with members that are stored or deflated. With zip64 the numbers
// are where they stand in large files.
inline std::string zip_of(const std::vector<std::pair<std::string, std::string>>& members,
                          bool is_deflated, bool is_zip64 = false) {
  std::string file, directory;
  for (const auto& [name, content] : members) {
    const std::string packed = is_deflated ? deflated(content, -MAX_WBITS) : content;
    const auto crc = static_cast<uint32_t>(
        crc32_z(0, reinterpret_cast<const Bytef*>(content.data()), content.size()));
    const std::string common = bytes_of_number<uint16_t>(20) + bytes_of_number<uint16_t>(0) +
                               bytes_of_number<uint16_t>(is_deflated ? 8 : 0) +
                               std::string(4, '\0') + bytes_of_number(crc);
    const std::string sizes = bytes_of_number(static_cast<uint32_t>(packed.size())) +
                              bytes_of_number(static_cast<uint32_t>(content.size()));
    const auto name_bytes = bytes_of_number(static_cast<uint16_t>(name.size()));
    std::string extra;
    if (is_zip64)
      extra = bytes_of_number<uint16_t>(1) + bytes_of_number<uint16_t>(16) +
              bytes_of_number<uint64_t>(content.size()) + bytes_of_number<uint64_t>(packed.size());
    directory += bytes_of_number<uint32_t>(0x02014b50) + bytes_of_number<uint16_t>(20) + common +
                 (is_zip64 ? std::string(8, '\xff') : sizes) + name_bytes +
                 bytes_of_number(static_cast<uint16_t>(extra.size())) + std::string(10, '\0') +
                 bytes_of_number(static_cast<uint32_t>(file.size())) + name + extra;
    file += bytes_of_number<uint32_t>(0x04034b50) + common + sizes + name_bytes +
            std::string(2, '\0') + name + packed;
  }
  const auto count = bytes_of_number(static_cast<uint16_t>(members.size()));
  std::string end64;
  if (is_zip64) {
    const auto count64 = bytes_of_number<uint64_t>(members.size());
    end64 = bytes_of_number<uint32_t>(0x06064b50) + bytes_of_number<uint64_t>(44) +
            std::string(12, '\0') + count64 + count64 +
            bytes_of_number<uint64_t>(directory.size()) + bytes_of_number<uint64_t>(file.size()) +
            bytes_of_number<uint32_t>(0x07064b50) + std::string(4, '\0') +
            bytes_of_number<uint64_t>(file.size() + directory.size()) +
            bytes_of_number<uint32_t>(1);
  }
  return file + directory + end64 + bytes_of_number<uint32_t>(0x06054b50) + std::string(4, '\0') +
         count + count + bytes_of_number(static_cast<uint32_t>(directory.size())) +
         bytes_of_number(static_cast<uint32_t>(file.size())) + std::string(2, '\0');
}

}  // namespace trireme::records
