// Tar files for tests.
#pragma once
#include <fmt/format.h>
#include <cstdint>
#include <string>
#include <string_view>

namespace trireme::records {

inline std::string padded_to_block(std::string text) {
  text.resize((text.size() + 511) / 512 * 512, '\0');
  return text;
}

inline std::string tar_header(const std::string& name, size_t bytes, char type = '0',
                              const std::string& link = {}) {
  std::string block(512, '\0');
  block.replace(0, name.size(), name);
  block.replace(100, 7, "0000644");
  block.replace(124, 11, fmt::format("{:011o}", bytes));
  block.replace(136, 11, "00000000000");
  block.replace(148, 8, "        ");
  block[156] = type;
  block.replace(157, link.size(), link);
  block.replace(257, 8,
                std::string("ustar\0"
                            "00",
                            8));
  unsigned sum = 0;
  for (const char c : block) sum += static_cast<unsigned char>(c);
  block.replace(148, 7, fmt::format("{:06o}", sum) + std::string(1, '\0'));
  return block;
}

inline std::string tar_member(const std::string& name, const std::string& content,
                              char type = '0') {
  return tar_header(name, content.size(), type) + padded_to_block(content);
}

inline std::string tar_end() { return std::string(1024, '\0'); }

// A NumPy file of version 1.
inline std::string npy_file(const std::string& descr, const std::string& shape,
                            const std::string& numbers, const std::string& order = "False") {
  std::string header =
      fmt::format("{{'descr': {}, 'fortran_order': {}, 'shape': {}, }}", descr, order, shape);
  header.resize((header.size() + 10 + 64) / 64 * 64 - 10, ' ');
  header.back() = '\n';
  std::string file = "\x93NUMPY\x01";
  file += '\0';
  file += static_cast<char>(header.size() & 0xff);
  file += static_cast<char>(header.size() >> 8);
  return file + header + numbers;
}

}  // namespace trireme::records
