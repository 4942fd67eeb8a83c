// Files of tokens for tests.
#pragma once
#include "files.h"

namespace trireme::records::tokens_tests {

template <typename T>
std::string tokens_from(T first, int count) {
  std::string bytes;
  for (int i = 0; i < count; ++i) bytes += bytes_of_number(static_cast<T>(first + i));
  return bytes;
}

inline std::string llmc_file(int32_t magic, int32_t count, const std::string& tokens) {
  std::string header =
      bytes_of_number(magic) + bytes_of_number<int32_t>(1) + bytes_of_number(count);
  header.resize(1024, '\0');
  return header + tokens;
}

struct Megatron {
  std::vector<int32_t> lengths{3, 2, 4};
  std::vector<int64_t> documents{0, 2, 3};
  uint8_t type = 8;
  int64_t shift = 0;  // Of all pointers.

  std::string index() const {
    std::string bytes = std::string("MMIDIDX\0\0", 9) + bytes_of_number<uint64_t>(1) +
                        bytes_of_number(type) + bytes_of_number<uint64_t>(lengths.size()) +
                        bytes_of_number<uint64_t>(documents.size());
    for (const int32_t length : lengths) bytes += bytes_of_number(length);
    int64_t at = shift;
    for (const int32_t length : lengths) {
      bytes += bytes_of_number(at);
      at += int64_t{2} * length;
    }
    for (const int64_t document : documents) bytes += bytes_of_number(document);
    return bytes;
  }
};

inline OpenOptions tokens(const std::filesystem::path& path, int64_t block) {
  OpenOptions options;
  options.format = "tokens";
  options.path = path;
  options.block = block;
  return options;
}

}  // namespace trireme::records::tokens_tests
